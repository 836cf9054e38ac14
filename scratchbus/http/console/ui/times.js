// Ages and countdowns that update themselves, and an input for times.
import { html, useComputed, useState } from "../lib/base.js";
import { clock, day, duration, now, parseTime, stamp, wall, zoned } from "../lib/time.js";

const millis = (value) => (typeof value === "number" ? value : Date.parse(value));

/** How long ago something was, at the moment shown, or now: "5m 12s". */
export function Age({ at, fromNow = false }) {
  const text = useComputed(() => duration(Math.max(0, (fromNow ? wall : now).value - millis(at)))).value;
  return html`<time class="number" datetime=${new Date(millis(at)).toISOString()} title=${zoned(millis(at))}>${text}</time>`;
}

/** How long it is until something, from the moment shown or from now: "5m 12s", and "over" afterwards. `soon` is when it begins to look urgent. */
export function Countdown({ until, soon = 60_000, over = "over", fromNow = false }) {
  const left = useComputed(() => millis(until) - (fromNow ? wall : now).value);
  const text = useComputed(() => (left.value <= 0 ? over : duration(left.value))).value;
  const urgent = useComputed(() => left.value < soon).value;
  return html`<time class="number ${urgent ? "soon" : ""}" datetime=${new Date(millis(until)).toISOString()}
    title=${zoned(millis(until))}>${text}</time>`;
}

/** A moment: the time of day, with the day before it unless it is the day that is shown. */
export function Moment({ at, precise = false }) {
  const ms = millis(at);
  const isToday = useComputed(() => day(now.value) === day(ms)).value;
  return html`<time class="number" datetime=${new Date(ms).toISOString()} title=${zoned(ms)}>
    ${isToday ? clock(ms, precise) : stamp(ms, precise)}</time>`;
}

/** A field for a time; `onTime(ms)` gets it. */
export function TimeField({ label, value = "", onTime, className = "" }) {
  const [text, setText] = useState(null);
  const ms = text === null ? null : parseTime(text);
  const wrong = text !== null && text.trim() !== "" && ms === null;
  const submit = (event) => {
    event.preventDefault();
    if (ms === null) return;
    setText(null);
    onTime(ms);
    event.target.querySelector("input").blur();
  };
  return html`<form class="time-field ${className}" onSubmit=${submit}>
    <input aria-label=${label} aria-invalid=${wrong ? "true" : undefined} value=${text ?? value} autocomplete="off" spellcheck="false"
      title="14:02, 14:02:07, yesterday 9:30, 2026-11-22 14:02, 5m ago, an ISO time or a position"
      onFocus=${(event) => event.target.select()} onInput=${(event) => setText(event.target.value)} onBlur=${() => setText(null)} />
    <span class="time-hint" role="status">${wrong && "Not a time yet. Such as 14:02, yesterday 9:30, 5m ago, or a position"}</span>
  </form>`;
}
