// Operations: the engine, the logs and their consumers, rejected events, the archive, and the types.
import { html, useEffect } from "../lib/base.js";
import { get } from "../lib/api.js";
import { useLoad } from "../lib/load.js";
import { may } from "../lib/state.js";
import { isPast } from "../lib/time.js";
import { Loading, ProblemNote } from "../ui/problem.js";
import { Archive, Engine, Shards } from "./operations/engine.js";
import { DeadLetters, Subscriptions } from "./operations/subscriptions.js";
import { Types } from "./operations/types.js";
import { Verify } from "./operations/verify.js";

const EVERY = 3000; // milliseconds between two looks

export default function Operations() {
  const { data, error, reload } = useLoad(async (signal) => {
    const [status, subscriptions] = await Promise.all([get("/status", {}, { signal }), get("/subscriptions", {}, { signal })]);
    return { status, subscriptions: subscriptions.items };
  }, [], { isTimeless: true });
  useEffect(() => {
    const timer = setInterval(() => document.hidden || reload(), EVERY);
    return () => clearInterval(timer);
  }, []);
  if (error && !data) return html`<${ProblemNote} error=${error} retry=${reload} />`;
  if (!data) return html`<${Loading} />`;
  return html`<div class="operations" tabindex="0" role="region" aria-label="Operations">
    ${isPast.value && html`<p class="operations-now">This view shows the present; engine and subscriptions keep no past. Back to live with <kbd>l</kbd>.</p>`}
    ${error && html`<${ProblemNote} error=${error} retry=${reload} />`}
    <${Engine} status=${data.status} />
    ${may("admin") ? html`<${Verify} />` : html`<div></div>`}
    <${Shards} shards=${data.status.shards} />
    <${Subscriptions} subscriptions=${data.subscriptions} reload=${reload} />
    <${DeadLetters} key=${data.subscriptions.map(({ name, dead_letters: many }) => `${name} ${many}`).join()} reload=${reload} />
    <${Archive} />
    <${Types} />
  </div>`;
}
