// The facts of a scope: a table that filters as the user types, and the selected fact in full.
import { html, useMemo, useRef } from "../../lib/base.js";
import { get, pagePath, read } from "../../lib/api.js";
import { useKeys } from "../../lib/keys.js";
import { useLoad } from "../../lib/load.js";
import { parseQuery } from "../../lib/query.js";
import { go, param } from "../../lib/route.js";
import { narrow } from "../../lib/screen.js";
import { may } from "../../lib/state.js";
import { countShown, Text, visible } from "../../lib/text.js";
import { isPast, now, stamp } from "../../lib/time.js";
import { Field } from "../../ui/dialog.js";
import { Filter, setFilter } from "../../ui/filter.js";
import { Empty, Loading, ProblemNote } from "../../ui/problem.js";
import { Table } from "../../ui/table.js";
import { Age, TimeField } from "../../ui/times.js";
import { Fact, retract } from "./fact.js";
import { openForm } from "./form.js";
import { pageOfScope, readFacts, scopePath, valid } from "./scope.js";
import { axisOf, Bar, Between, spanOf, State } from "./span.js";

const NAMES = ["subject", "relation", "object", "by"];
const MAX_FACTS = 1000; // facts
const FEW = 50; // contests
const query = param("q");
const chosen = param("fact");

export function Facts({ scope }) {
  const terms = useMemo(() => parseQuery(query.value, NAMES), [query.value]);
  const [subject, object] = ["subject", "object"].map((wanted) => terms.find(({ name, not }) => name === wanted && !not)?.value);
  const { data, error, loading, reload } = useLoad((signal) => loadFacts(scope, subject, object, signal), [scope, valid.value, subject, object], { on: (event) => event.page === pageOfScope(scope) });
  const rows = useMemo(() => (data?.spans ?? []).filter((span) => fits(span, terms)), [data, terms]);
  const axis = useMemo(() => axisOf(rows, { cut: true }), [rows]);
  const table = useRef(null);
  const known = data?.spans.find(({ fact }) => fact.id === chosen.value);
  const select = (id) => go({ fact: id === chosen.peek() ? null : id }, { replace: true });
  useKeys([
    { keys: "j", group: "This view", label: "Next fact", run: () => table.current?.move(1) },
    { keys: "k", group: "This view", label: "Fact before", run: () => table.current?.move(-1) },
    { keys: "Escape", group: "This view", label: "Close the fact", when: () => chosen.peek() !== "", run: () => go({ fact: null }, { replace: true }) },
    { keys: "a", group: "Act", label: "Assert a fact", when: canWrite, run: () => assert(scope) },
    { keys: "x", group: "Act", label: "Retract the fact", repeat: false, when: () => canWrite() && known !== undefined, run: () => retract(scope, known.fact) },
  ], [scope, known]);

  if (error && !data) return html`<${ProblemNote} error=${error} retry=${reload} />`;
  if (!data) return html`<${Loading} />`;
  const suggest = (name) => [...new Set(data.spans.map(({ fact }) => fact[name === "by" ? "source" : name]))].sort();
  return html`<div class="facts ${chosen.value ? "with-detail" : ""}"><div class="facts-list">
    <div class="toolbar">
      <${Filter} value=${query.value} onValue=${setFilter} names=${NAMES} suggest=${suggest} placeholder="Filter: words, subject:, relation:, object:, by:" />
      <span class="toolbar-count" role="status">${countShown(rows.length, data.spans.length, "fact", data.isFull)}</span>
      <span class="facts-when"><span class="quiet" aria-hidden="true">true at</span><${TimeField} label="True at" value=${valid.value ? stamp(Date.parse(valid.value)).slice(0, 16) : isPast.value ? stamp(now.value).slice(0, 16) : "now"} onTime=${(ms) => go({ valid: new Date(ms).toISOString() }, { replace: true })} />
        ${valid.value && html`<button type="button" class="icon" aria-label="True at the moment shown" title="True at the moment shown" onClick=${() => go({ valid: null }, { replace: true })}>✕</button>`}</span>
      ${may("memory") && html`<button type="button" disabled=${isPast.value} title="Assert a fact (a)" onClick=${() => assert(scope)}>Assert</button>`}
    </div>
    ${error && html`<${ProblemNote} error=${error} retry=${reload} />`}
    ${rows.length > 0
      ? html`<${Table} label="Facts, the last asserted first" className="facts-table" rows=${rows} keyOf=${({ fact }) => fact.id} columns=${columnsOf(axis)} rowHeight=${narrow.value ? 58 : 34}
          selected=${chosen.value} onSelect=${({ fact }) => select(fact.id)} control=${table} rowClass=${({ state }) => `is-${state}`} />`
      : !loading && html`<${None} scope=${scope} hasSome=${data.spans.length > 0} />`}
    </div>
    ${chosen.value && html`<${Fact} key=${`${scope} ${chosen.value}`} scope=${scope} id=${chosen.value} />`}</div>`;
}

const canWrite = () => may("memory") && !isPast.peek();

const columnsOf = (axis) => [
  { name: "subject", title: "Subject", cell: ({ fact }) => html`<strong class="excerpt" dir="auto"><${Text} value=${fact.subject} /></strong>` },
  { name: "relation", title: "Relation", cell: ({ fact }) => html`<span class="relation">${visible(fact.relation.replaceAll("_", " "))}</span>` },
  { name: "object", title: "Object", cell: (span) => html`<span class="excerpt" dir="auto"><${Text} value=${span.fact.object} /></span>${span.state !== "valid" && html` <${State} span=${span} />`}` },
  { name: "valid", title: "True from → until", cell: (span) => html`<${Between} span=${span} />` },
  { name: "axis", title: html`<span class="visually-hidden">Drawn</span>`, cell: (span) => html`<${Bar} span=${span} axis=${axis} />` },
  { name: "by", title: "Said by", cell: ({ fact }) => html`<span class="excerpt" dir="auto"><${Text} value=${fact.source} /></span>` },
  { name: "age", title: "Age", cell: ({ fact }) => html`<${Age} at=${fact.created_at} />` },
];

/** Return the facts that are true at the moment, the contested ones before them; also older ones of a subject or an object. */
async function loadFacts(scope, subject, object, signal) {
  const find = (given) => readFacts(scope, [], { ...given, limit: MAX_FACTS }, { signal, isTrue: true });
  const [found, contested] = await Promise.all([find({}), contestedOf(scope, signal)]);
  const isFull = found.items.length >= MAX_FACTS;
  const more = isFull && (subject || object) ? (await find({ subject, object })).items : [];
  const all = new Map([...contested, ...[...found.items, ...more].map((fact) => spanOf(fact))].map((span) => [span.fact.id, span]));
  return { spans: [...all.values()], isFull };
}

/** Return the facts between which nobody has decided: an observation on the page of the scope asks for that. */
async function contestedOf(scope, signal) {
  const { items } = await (isPast.peek()
    ? read(pagePath(pageOfScope(scope), "observations"), { status: "pending_review", tag: "fact_contest", limit: FEW }, { signal, silent: "" })
    : get(scopePath(scope, "facts", "pending-review"), {}, { signal }));
  const spans = await Promise.all(items.slice(0, FEW).map(({ context }) => readFacts(scope, ["timeline"], { subject: context.subject, relation: context.relation }, { signal })));
  return spans.flatMap((each) => each.items).filter(({ state }) => state === "contested").toReversed();
}

const textOf = (fact, name) => (name === "text" ? [fact.subject, fact.relation, fact.relation.replaceAll("_", " "), fact.object, fact.source, fact.source_text ?? ""].join(" ") : fact[name === "by" ? "source" : name]).toLowerCase();

/** Return whether a fact fits: of several terms with one name, one has to; of words, all. */
function fits({ fact }, terms) {
  const has = ({ name, value }) => textOf(fact, name).includes(value.toLowerCase());
  return terms.every((term) => (term.not ? !has(term) : term.name === "text" ? has(term) : terms.some((each) => each.name === term.name && !each.not && has(each))));
}

function None({ scope, hasSome }) {
  if (hasSome) return html`<${Empty} title="No fact fits the filter"><p><button type="button" onClick=${() => setFilter("")}>Clear the filter</button></p><//>`;
  if (valid.value || isPast.value) return html`<${Empty} title="No fact was true then"><p>${valid.value ? html`<button type="button" onClick=${() => go({ valid: null }, { replace: true })}>Show what is true ${isPast.value ? "at the moment shown" : "now"}</button>` : html`Step on with <kbd>→</kbd>, or go back to live with <kbd>l</kbd>.`}</p><//>`;
  return html`<${Empty} title="No facts yet"><p>Who or what is how related, and since when: by a program, or an agent over MCP.</p>
    <pre>bus.facts("${visible(scope)}").assert_fact("shop", "runs_on", "Node 24", valid_at="2026-02-01")</pre>
    ${canWrite() && html`<p><button type="button" class="primary" onClick=${() => assert(scope)}>Assert one</button></p>`}<//>`;
}

const isoOf = (text) => (text ? new Date(text).toISOString() : undefined);

const assert = (scope) => openForm({ title: "Assert a fact", label: "Assert", done: "Asserted", wide: true, values: { subject: "", relation: "", object: "", from: "", until: "", said: "" },
  fields: (values, set) => html`<${Field} label="Subject"><input required data-autofocus value=${values.subject} onInput=${set("subject")} /><//>
    <div class="field-row"><${Field} label="Relation" hint="One that is declared, such as runs_on or owner"><input required spellcheck="false" value=${values.relation} onInput=${set("relation")} /><//>
      <${Field} label="Object"><input required value=${values.object} onInput=${set("object")} /><//></div>
    <div class="field-row"><${Field} label="True from" hint="Left empty, from now on"><input type="datetime-local" value=${values.from} onInput=${set("from")} /><//>
      <${Field} label="Until" hint="Left empty, until another value takes its place"><input type="datetime-local" value=${values.until} onInput=${set("until")} /><//></div>
    <${Field} label="The text that says so" hint="Optional"><textarea rows="2" value=${values.said} onInput=${set("said")}></textarea><//>`,
  send: ({ subject, relation, object, from, until, said }) => ["POST", scopePath(scope, "facts"),
    Object.fromEntries(Object.entries({ subject, relation, object, valid_at: isoOf(from), invalid_at: isoOf(until), source_text: said || undefined }).filter(([, value]) => value !== undefined))] });
