// The context that an agent would get: its text by section, the budget of each, and the source of each line.
import { html } from "../../lib/base.js";
import { write } from "../../lib/api.js";
import { useLoad } from "../../lib/load.js";
import { go, link, param } from "../../lib/route.js";
import { page } from "../../lib/state.js";
import { count, shortId, Text, visible } from "../../lib/text.js";
import { isPast, positionOf } from "../../lib/time.js";
import { Empty, ProblemNote } from "../../ui/problem.js";
import { Moment } from "../../ui/times.js";
import { useTyped } from "../../ui/typed.js";
import { eventsOf, pageOf } from "./recall.js";

const BUDGET = "4000"; // tokens
const budget = param("budget", BUDGET);
const query = param("about");
const WAIT = 250; // milliseconds after the last change
const COLOURS = ["added", "memory", "claims", "changed", "removed", "types"];

export function Context({ session, agent }) {
  const [typedBudget, setBudget] = useTyped("budget", budget, WAIT, BUDGET);
  const [typedAbout, setAbout] = useTyped("about", query, WAIT);
  const tokens = Math.max(1, Math.min(200_000, Number(budget.value) || Number(BUDGET)));
  const asked = { ...(session ? { session } : {}), ...(agent ? { agent } : {}), page: page.value, budget: tokens, ...(query.value ? { query: query.value } : {}) };
  const mine = [page.value, session && pageOf(session)];
  const made = useLoad((signal) => (isPast.peek() ? null : write("POST", "/context/assemble", asked, { signal })), [session, agent, page.value, budget.value, query.value], { on: (event) => mine.includes(event.page) && event.kind !== "context_rendered" });
  const shown = useLoad((signal) => earlier(session, agent, signal), [session, agent, page.value], { on: (event) => event.kind === "context_rendered" });
  return html`<div class="memory-part context">
    <div class="context-form"><label>Budget, in tokens <input type="number" min="1" max="200000" step="100" value=${typedBudget} onInput=${(event) => setBudget(event.target.value)} /></label>
      <label class="context-about">About <input placeholder="Left empty, the newest notes come first" value=${typedAbout} onInput=${(event) => setAbout(event.target.value)} /></label>
      <span class="hint">With the page <strong>${visible(page.value)}</strong>; another one with <kbd>p</kbd>.</span></div>
    ${isPast.value ? html`<p class="hint context-past">A context is made of what is true now; go back to live with <kbd>l</kbd> to see it. What was shown until this moment is below.</p>`
      : made.error ? html`<${ProblemNote} error=${made.error} retry=${made.reload} />` : made.data && html`<${Made} made=${made.data} session=${session} />`}
    ${shown.data && html`<${Earlier} events=${shown.data} />`}
  </div>`;
}

function Made({ made, session }) {
  const left = Math.max(0, made.budget - made.tokens);
  const sections = made.sections.map((each, index) => ({ ...each, colour: `var(--kind-${COLOURS[index % COLOURS.length]})` }));
  if (!made.text) return html`<${Empty} title="The context would be empty"><p>The session has no notes, and nothing is open on ${visible(page.value)}.</p><//>`;
  return html`<div class="budget">
      <p><strong class="number">${made.tokens.toLocaleString("en")}</strong> of ${made.budget.toLocaleString("en")} tokens${Object.values(made.left_out).some(Boolean) ? html`; <strong class="left-out">${count(Object.values(made.left_out).reduce((sum, each) => sum + each, 0), "item")} had no room</strong>` : "; everything has room"}</p>
      <div class="budget-bar" role="img" aria-label=${`${sections.map(({ name, tokens }) => `${name} ${tokens}`).join(", ")}, free ${left}`}>${sections.map(({ name, tokens, colour }) => html`<span key=${name} title="${visible(name)}: ${tokens} tokens" style=${{ width: `${(tokens / made.budget) * 100}%`, background: colour }}></span>`)}</div>
    </div>
    ${sections.map((section) => html`<${Section} key=${section.name} section=${section} session=${session} />`)}`;
}

function Section({ section, session }) {
  const { name, tokens, items, colour, left_out: leftOut } = section;
  const rest = items.length ? headOf(section) : section.text;
  return html`<section class="context-section"><h3><span class="swatch" style=${{ background: colour }}></span><${Text} value=${name} /> <small class="number">${count(tokens, "token")}${leftOut ? html`, <strong class="left-out">${leftOut} left out</strong>` : ""}</small></h3>
    ${rest && html`<pre><${Text} value=${rest} lines /></pre>`}
    ${items.length > 0 && html`<ul class="context-lines">${items.map((item, index) => html`<li key=${item.id ?? index}><pre><${Text} value=${item.text.trim()} lines /></pre><div class="context-from"><span class="number quiet">${item.tokens}</span><${Origin} item=${item} session=${session} /></div></li>`)}</ul>`}</section>`;
}

/** Return what a section says before its items. */
const headOf = ({ text, items }) => text.slice(0, Math.max(0, text.indexOf(items[0].text))).trimEnd();

/** Where a line comes from. */
function Origin({ item, session }) {
  const log = item.position && html` <a href=${link({ q: `subject:${item.id}`, page: item.page ?? page.value }, "log")} title=${item.position}>events</a>`;
  if (item.kind === "observation") return html`<span><a href=${link({ selected: item.id, page: item.page }, "story")}>story ${shortId(item.id)}</a>${log}</span>`;
  if (item.kind === "note") return html`<span><a href=${link({ tab: null, session, find: null }, "memory")}>note</a>${log}</span>`;
  if (item.kind === "todo") return html`<a href=${link({ tab: "todo", session }, "memory")}>todo ${visible(item.id)}</a>`;
  return null;
}

async function earlier(session, agent, signal) {
  const events = await eventsOf(undefined, ["context_rendered"], signal, 200);
  return events.filter((event) => (session ? event.session === session : event.agent === agent)).toReversed();
}

function Earlier({ events }) {
  return html`<section class="context-section" aria-labelledby="earlier"><h3 id="earlier">Shown ${isPast.value ? "until then" : "so far"} <small>${count(events.length, "recorded context")}</small></h3>
    ${events.length ? html`<ul class="earlier">${events.slice(0, 30).map((event) => html`<li key=${event.id}><button type="button" class="small" onClick=${() => go({ at: positionOf(event) })}><${Moment} at=${event.at} /></button>
      <span>${count(Object.keys(event.observations ?? {}).length, "observation")} of <${Text} value=${event.page} />${event.tokens ? `, ${count(event.tokens, "token")}` : ""} <span class="quiet">by <${Text} value=${event.by} /></span></span></li>`)}</ul>`
      : html`<p class="hint">None. A context that is assembled with <code>record=True</code> is noted, so that a refutation finds who read what.</p>`}</section>`;
}
