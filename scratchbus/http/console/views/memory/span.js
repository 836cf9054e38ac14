// When a fact is true: in words, and as a bar on a time axis.
import { html } from "../../lib/base.js";
import { clock, day, now } from "../../lib/time.js";

const DAY = 86_400_000;

/** Return a fact with the time in which it is true; `span` has it where it follows from other facts. */
export const spanOf = (fact, span = {}) => ({ fact, begins: fact.valid_at ?? fact.created_at, ends: fact.invalid_at, state: "valid", contested_by: [], ...span });

/** Return the state of a span in a word: valid, ended, contested, superseded or retracted. */
export const stateOf = ({ state, begins, ends }, at = now.value) =>
  state !== "valid" ? state : ends && Date.parse(ends) <= at ? "ended" : Date.parse(begins) > at ? "not yet" : "valid";

const COLOURS = { valid: "status-open", contested: "status-is-pending_review", retracted: "status-bad" };

/** The state as a sign. */
export const State = ({ span }) => html`<span class="status ${COLOURS[stateOf(span)] ?? ""}">${stateOf(span)}</span>`;

/** Return a time as a day, or of today as the time of day. */
function short(text) {
  const ms = Date.parse(text);
  if (ms % DAY === 0) return text.slice(0, 10);
  return day(ms) === day(now.value) ? clock(ms).slice(0, 5) : day(ms);
}

/** From when until when, in words; of one that never counts, from when it would. */
export const Between = ({ span }) => html`<span class="span-text number" title="from ${span.begins} until ${span.ends ?? "no end is known"}">${
  span.state === "valid" ? html`${short(span.begins)} <span aria-hidden="true">→</span><span class="visually-hidden">until</span> ${span.ends ? short(span.ends) : "open"}` : `from ${short(span.begins)}`}</span>`;

/**
 * Return {first, last, at} in milliseconds, an axis for these spans and a moment. One that is `cut` begins where a quarter of
 * them have begun, so that a single old one does not make all others small.
 */
export function axisOf(spans, { at = now.peek(), cut = false } = {}) {
  const begins = spans.map((each) => Date.parse(each.begins)).sort((a, b) => a - b);
  const first = Math.min(at, begins[cut ? Math.floor(begins.length / 4) : 0] ?? at);
  const last = Math.max(at, ...begins, ...spans.map(({ ends }) => (ends ? Date.parse(ends) : at)));
  return { first, last: last > first ? last : first + 1, at };
}

/** The bar of a span on an axis; without an end it goes on to the right. A line marks the moment that is asked about. */
export function Bar({ span, axis }) {
  const place = (ms) => Math.max(0, Math.min(100, ((ms - axis.first) / (axis.last - axis.first)) * 100));
  const ends = span.state === "valid" ? span.ends : span.fact.invalid_at;
  const from = Math.min(place(Date.parse(span.begins)), 97);
  const to = ends ? place(Date.parse(ends)) : 100;
  return html`<span class="span-axis" aria-hidden="true"><span class="span-bar is-${span.state} ${ends ? "" : "is-open"}" style=${{ left: `${from}%`, width: `${Math.max(to - from, 3)}%` }}></span>
    ${axis.at < axis.last && html`<span class="span-now" style=${{ left: `${place(axis.at)}%` }}></span>`}</span>`;
}
