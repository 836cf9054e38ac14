// Subscriptions, with their lag and dead letters.
import { html, useState } from "../../lib/base.js";
import { get, path, write } from "../../lib/api.js";
import { useLoad } from "../../lib/load.js";
import { link } from "../../lib/route.js";
import { may } from "../../lib/state.js";
import { count, Text, visible } from "../../lib/text.js";
import { duration } from "../../lib/time.js";
import { messageOf, ProblemNote } from "../../ui/problem.js";
import { Countdown, Moment } from "../../ui/times.js";
import { toast } from "../../ui/toast.js";
import { openForm } from "../memory/form.js";
import { Grid, number, Panel } from "./parts.js";

const filtersOf = ({ filters }) =>
  Object.entries(filters).filter(([, values]) => values?.length).map(([name, values]) => `${name}: ${values.join(", ")}`).join("; ") || "everything";

export function Subscriptions({ subscriptions, reload }) {
  const behind = subscriptions.filter(({ lag }) => lag > 0).length;
  const columns = [
    { title: "Name", names: true, cell: (it) => html`<strong><${Text} value=${it.name} /></strong>${it.url && html` <small title=${visible(it.url)}>webhook</small>`}${it.dropped && html` <span class="status">dropped</span>`}` },
    { title: "Lag", number: true, cell: (it) => (it.lag ? html`<span class="behind">${number(it.lag)}</span>` : "0") },
    { title: "For", number: true, cell: (it) => (it.lag ? duration(it.lag_seconds * 1000) : "") },
    { title: "Consumer", cell: (it) => it.holder ? html`<${Text} value=${it.holder} /> <small><${Countdown} until=${it.until} soon=${0} over="" fromNow /></small>` : html`<span class="quiet">nobody</span>` },
    { title: "Takes", cell: (it) => html`<${Text} value=${filtersOf(it)} />` },
    { title: "Trying", cell: (it) => (it.trying ? html`<code>${it.trying}</code> <small>attempt ${it.attempts + 1}</small>` : "") },
    { title: "Dead letters", number: true, cell: (it) => (it.dead_letters ? html`<strong class="behind">${number(it.dead_letters)}</strong>` : "0") },
    ...(may("act") ? [{ title: "", cell: (it) => html`<button type="button" class="small danger" aria-label="Delete the subscription ${visible(it.name)}" onClick=${() => remove(it, reload)}>Delete</button>` }] : []),
  ];
  return html`<${Panel} id="subscriptions" title="Subscriptions" wide note=${subscriptions.length ? (behind ? `${behind} of ${subscriptions.length} behind` : "all at the end") : ""} sign=${subscriptions.length ? (behind ? "warn" : "good") : null}>
    ${subscriptions.length ? html`<${Grid} label="Subscriptions" columns=${columns} rows=${subscriptions} keyOf=${({ name }) => name} />`
      : html`<p class="hint">None. A daemon makes one with <code>bus.subscribe("name", types=[…])</code>, any program with <code>PUT /api/v1/subscriptions/name</code>.</p>`}<//>`;
}

const remove = (it, reload) => openForm({ title: `Delete ${visible(it.name)}?`, label: "Delete", done: "Deleted", grave: true, onDone: reload,
  fields: () => html`<p>Its place in the log is forgotten${it.dead_letters ? `, and so ${it.dead_letters === 1 ? "is its dead letter" : `are its ${it.dead_letters} dead letters`}` : ""}. No event is deleted.</p>`,
  send: () => ["DELETE", path("subscriptions", it.name)] });

export function DeadLetters({ reload: reloadStatus }) {
  const { data, error, reload } = useLoad((signal) => get("/dead-letters", {}, { signal }), [], { isTimeless: true });
  const [busy, setBusy] = useState(false);
  if (error && !data) return html`<${Panel} id="dead" title="Dead letters" wide><${ProblemNote} error=${error} retry=${reload} /><//>`;
  if (!data) return null;
  const settle = async (verb, name, positions) => {
    setBusy(true);
    try {
      const { count: many } = await write("POST", path("subscriptions", name, "dead-letters", verb), positions ? { positions } : {});
      toast(`${count(many, "event")} ${verb === "retry" ? "will be delivered again" : "dropped"}`);
    } catch (problem) {
      toast(messageOf(problem), { kind: "error" });
    }
    setBusy(false);
    reload();
    reloadStatus();
  };
  const bySubscription = Map.groupBy(data.items, ({ subscription }) => subscription);
  const columns = (name) => [
    { title: "Event", names: true, cell: (it) => html`<a href=${link({ q: `subject:${it.subject}`, page: it.page }, "log")}>${visible(it.kind)}</a> <small><code>${it.position}</code></small>` },
    { title: "Page", cell: (it) => html`<${Text} value=${it.page} />` },
    { title: "Why", cell: (it) => html`<span class="reason"><${Text} value=${it.reason} /></span>` },
    { title: "Attempts", number: true, cell: (it) => it.attempts },
    { title: "Since", cell: (it) => html`<${Moment} at=${it.at} />` },
    ...(may("admin") ? [{ title: "", cell: (it) => html`<span class="buttons"><button type="button" class="small" disabled=${busy} aria-label="Retry ${it.position}" onClick=${() => settle("retry", name, [it.position])}>Retry</button>
      <button type="button" class="small danger" disabled=${busy} aria-label="Drop ${it.position}" onClick=${() => settle("drop", name, [it.position])}>Drop</button></span>` }] : []),
  ];
  return html`<${Panel} id="dead" title="Dead letters" wide note=${data.items.length ? count(data.items.length, "event") : ""} sign=${data.items.length ? "bad" : "good"}>
    ${error && html`<${ProblemNote} error=${error} retry=${reload} />`}
    ${data.items.length === 0 && html`<p class="hint">None. An event that a subscription fails to handle again and again is set aside here.</p>`}
    ${[...bySubscription].map(([name, rows]) => html`<div key=${name} class="letters"><div class="letters-head"><h3><${Text} value=${name} /></h3>
      ${may("admin") && html`<span class="buttons"><button type="button" class="small" disabled=${busy} onClick=${() => settle("retry", name)}>Retry all</button>
        <button type="button" class="small danger" disabled=${busy} onClick=${() => dropAll(name, rows.length, () => (reload(), reloadStatus()))}>Drop all …</button></span>`}</div>
      <${Grid} label="Dead letters of ${visible(name)}" columns=${columns(name)} rows=${rows} keyOf=${({ position }) => position} /></div>`)}<//>`;
}

const dropAll = (name, many, reload) => openForm({ title: `Drop all dead letters of ${visible(name)}?`, label: "Drop", done: "Dropped", grave: true, onDone: reload,
  fields: () => html`<p>${count(many, "event")} will not be delivered to it again. The events themselves stay in the log.</p>`,
  send: () => ["POST", path("subscriptions", name, "dead-letters", "drop"), {}] });
