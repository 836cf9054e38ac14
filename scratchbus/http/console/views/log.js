// Log: events as they arrive, and back to the oldest one kept.
import { html, useEffect, useMemo, useRef, useSignal, useState } from "../lib/base.js";
import { get } from "../lib/api.js";
import { epoch } from "../lib/connection.js";
import { EVENT_KINDS, groupOf } from "../lib/kinds.js";
import { useKeys } from "../lib/keys.js";
import { onEvents } from "../lib/live.js";
import { fits, parseQuery } from "../lib/query.js";
import { go, param } from "../lib/route.js";
import { pages, selected } from "../lib/state.js";
import { countShown, shortId, Text, visible } from "../lib/text.js";
import { beyond, isPast, millisOf, moment, positionOf } from "../lib/time.js";
import { narrow } from "../lib/screen.js";
import { Filter, setFilter } from "../ui/filter.js";
import { Empty, Loading, ProblemNote } from "../ui/problem.js";
import { Table } from "../ui/table.js";
import { Moment } from "../ui/times.js";
import { describe, directionOf } from "./log/describe.js";

const NAMES = ["kind", "type", "page", "by", "subject"];
const STEP = 500; // events a request, back in time
const MAX_EVENTS = 200_000; // events kept; older ones are not loaded, and go when new ones come

const query = param("q");
const paused = param("paused");

const keyOf = (event) => positionOf(event) + event.page;
const textOf = (event) => (event.lower ??= JSON.stringify(event).toLowerCase());
const valuesOf = (event) => (name) => (name === "text" ? [textOf(event)] : [String(event[name])]);

export default function Log() {
  const { events, error, atStart, loadOlder, reload, waiting, resume } = useEventList();
  const terms = useMemo(() => parseQuery(query.value, NAMES), [query.value]);
  const isFull = !atStart && events.length >= MAX_EVENTS;
  const atEnd = atStart || isFull;
  const rows = useMemo(() => (terms.length ? events.filter((each) => fits(terms, valuesOf(each))) : events), [events, terms]);
  const [expanded, setExpanded] = useState(() => new Set());
  const table = useRef(null);
  const toggle = (row) => setExpanded((before) => {
    const after = new Set(before);
    if (!after.delete(keyOf(row))) after.add(keyOf(row));
    return after;
  });
  const collapse = () => { // the row with the focus if it is expanded, else all
    const row = table.current?.current();
    const isIn = table.current?.hasFocus() ?? false;
    setExpanded((before) => new Set(isIn && row && before.has(keyOf(row)) ? [...before].filter((each) => each !== keyOf(row)) : []));
    if (isIn) table.current.focus();
  };
  const pause = () => (paused.peek() ? resume() : go({ paused: "yes" }, { replace: true }));
  useKeys([
    { keys: "j", group: "This view", label: "Next row", run: () => table.current?.move(1) },
    { keys: "k", group: "This view", label: "Row before", run: () => table.current?.move(-1) },
    { keys: "z", group: "This view", label: "Pause, or go on", run: pause },
    { keys: "Home", group: "This view", label: "To the newest", run: () => table.current?.scrollToStart() },
    { keys: "Escape", group: "This view", label: "Close what is expanded, then clear the filter", when: () => expanded.size > 0 || query.peek() !== "", run: () => (expanded.size > 0 ? collapse() : setFilter("")) },
  ], [paused.value, expanded]);

  useEffect(() => { // a filter that few events fit looks further back by itself
    if (terms.length && rows.length < 50 && !atEnd) loadOlder();
  }, [terms, rows.length, events.length, atEnd]);

  const suggest = (name) => ({ kind: EVENT_KINDS, page: pages.value.map((each) => each.name) })[name] ?? [...new Set(events.slice(0, 2000).map((each) => String(each[name])))].sort();
  return html`<section class="log" aria-label="Events">
    <div class="toolbar">
      <${Filter} value=${query.value} onValue=${setFilter} names=${NAMES} placeholder="Filter: words, kind:, type:, page:, by:" suggest=${suggest} />
      <span class="toolbar-count" role="status" aria-live=${terms.length ? "polite" : "off"}>${events.length > 0 || atStart ? countShown(rows.length, events.length, "event", !atStart) : ""}${isFull && "; go back in time for older ones"}</span>
      ${!isPast.value && html`<button type="button" aria-pressed=${paused.value !== ""} title="Pause without losing an event (z)" onClick=${pause}>
        ${paused.value ? `Go on${waiting ? `, ${waiting.toLocaleString("en")} new` : ""}` : "Pause"}</button>`}
    </div>
    ${error && html`<${ProblemNote} error=${error} retry=${reload} />`}
    ${rows.length > 0
      ? html`<${Table} label="Events, newest first" className="log-table" rows=${rows} keyOf=${keyOf} columns=${COLUMNS} rowHeight=${narrow.value ? 50 : 28}
          onSelect=${toggle} expanded=${expanded} detail=${(row) => html`<${Raw} event=${row} />`} onEnd=${atEnd ? null : loadOlder} control=${table}
          rowClass=${(row) => (row.subject === selected.value ? "of-selected" : "")} />`
      : !error && !atEnd ? html`<${Loading} />`
      : !error && html`<${Empty} title=${events.length ? "No event fits the filter" : isPast.value ? "Nothing had happened then" : "Nothing has happened yet"}>
          ${events.length > 0 ? html`<p><button type="button" onClick=${() => setFilter("")}>Clear the filter</button></p>` : html`<p>Events appear here as they are written.</p>`}<//>`}
  </section>`;
}

const COLUMNS = [
  { name: "time", title: "Time", cell: (row) => html`<${Moment} at=${row.at} precise />` },
  { name: "kind", title: "Kind", cell: (row) => html`<span class="kind kind-${groupOf(row.kind)}">${row.kind.replaceAll("_", " ")}</span>` },
  { name: "page", title: "Page", cell: (row) => html`<span class="excerpt" dir="auto">${visible(row.page)}</span>` },
  { name: "type", title: "Type", cell: (row) => html`<span class="excerpt" dir="auto">${visible(row.type)}</span>` },
  { name: "what", title: "What", cell: (row) => html`<span class="excerpt" dir=${directionOf(row)}><${Text} value=${describe(row)} /></span>` },
  { name: "by", title: "By", cell: (row) => html`<span class="excerpt" dir="auto"><${Text} value=${row.by} /></span>` },
  { name: "subject", title: "Subject", cell: (row) => html`<span class="excerpt id" title=${visible(row.subject)}>${visible(shortId(row.subject))}</span>` },
];

/** The event as it is kept, and where one may go from it. */
function Raw({ event }) {
  const { lower, ...kept } = event;
  const isObservation = /^[0-9A-Z]{26}$/.test(event.subject);
  return html`<div class="raw"><div class="raw-links">
    ${isObservation && html`<button type="button" class="small" onClick=${() => go({ page: event.page, selected: event.subject, at: moment.peek() || null }, { view: "now" })}>Show on the page</button>`}
    <button type="button" class="small" onClick=${() => go({ at: positionOf(event) })}>Go to this moment</button>
    <button type="button" class="small" onClick=${() => setFilter(`subject:${event.subject}`)}>Only this subject</button></div>
    <pre tabindex="0" aria-label="The event as JSON"><${Text} value=${JSON.stringify(kept, null, 2)} lines /></pre></div>`;
}

/** The events, newest first: up to the moment shown, or live. While paused, new ones wait. */
function useEventList() {
  const list = useSignal([]);
  const waiting = useSignal([]);
  const [state, setState] = useState({ error: null, atStart: false });
  const busy = useRef(false);
  const generation = useRef(0);
  const begun = useRef(epoch.peek());

  const add = (fresh) => {
    const known = new Set(list.peek().slice(0, 2 * STEP).map(keyOf));
    const later = fresh.filter((each) => !known.has(keyOf(each))).sort(newestFirst);
    if (!later.length) return;
    const all = [...later, ...list.peek()];
    list.value = all.slice(0, MAX_EVENTS);
    if (all.length > MAX_EVENTS) setState((before) => ({ ...before, atStart: false }));
  };
  const loadOlder = async () => {
    if (busy.current || list.peek().length >= MAX_EVENTS) return;
    busy.current = true;
    const mine = generation.current;
    const oldest = list.peek().at(-1);
    const at = moment.peek();
    try {
      const before = oldest ? positionOf(oldest) : at ? beyond(at) : undefined;
      const { items } = await get("/events", { last: STEP, before });
      if (mine === generation.current) {
        const known = new Set(list.peek().map(keyOf)); // events that came live since it was asked
        const all = [...list.peek(), ...items.filter((each) => !known.has(keyOf(each))).reverse()];
        list.value = all.slice(0, MAX_EVENTS);
        setState({ error: null, atStart: items.length < STEP && all.length <= MAX_EVENTS });
      }
    } catch (error) {
      if (mine === generation.current) setState((before) => ({ ...before, error }));
    }
    busy.current = false;
  };
  /** After an outage: take what came meanwhile. Load again if the log is another one, or too much came. */
  const refresh = async () => {
    const shown = [...list.peek(), ...waiting.peek()];
    const mine = generation.current;
    if (!shown.length) return reload();
    try {
      const at = moment.peek();
      const { items } = await get("/events", { last: STEP, before: at ? beyond(at) : undefined });
      if (mine !== generation.current) return undefined;
      const found = new Set(items.map(keyOf));
      const recent = items.length ? shown.filter((each) => newestFirst(each, items[0]) <= 0) : [];
      if (!recent.length || !recent.every((each) => found.has(keyOf(each)))) return reload();
      arrive(items);
      setState((state) => ({ ...state, error: null }));
    } catch (error) {
      if (mine !== generation.current) return undefined;
      if ([403, 404].includes(error.status)) return reload(); // nothing may stay
      setState((state) => ({ ...state, error }));
    }
    return undefined;
  };
  const reload = () => {
    generation.current++;
    busy.current = false;
    list.value = [];
    waiting.value = [];
    setState({ error: null, atStart: false });
    return loadOlder();
  };
  const arrive = (events) => {
    if (!paused.peek()) return add(events);
    const known = new Set([...list.peek().slice(0, 2 * STEP), ...waiting.peek().slice(-2 * STEP)].map(keyOf));
    waiting.value = [...waiting.peek(), ...events.filter((each) => !known.has(keyOf(each)))].slice(-MAX_EVENTS);
    return undefined;
  };
  useEffect(() => void reload(), [moment.value]);
  useEffect(() => void (epoch.value !== begun.current && refresh()), [epoch.value]);
  useEffect(() => onEvents((events) => isPast.peek() || arrive(events)), []);
  const resume = () => {
    add(waiting.peek());
    waiting.value = [];
    go({ paused: null }, { replace: true });
  };
  return { events: list.value, ...state, loadOlder, reload, waiting: waiting.value.length, resume };
}

const sequence = (event) => Number(positionOf(event).split("-")[1]);
const newestFirst = (a, b) => millisOf(positionOf(b)) - millisOf(positionOf(a)) || sequence(b) - sequence(a);
