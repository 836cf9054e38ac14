// Time: one clock that ticks once a second, durations and moments as text, and what people type as a time.
import { signal, computed, effect } from "./base.js";
import { go, param } from "./route.js";

const tick = signal(Date.now());
let ahead = 0; // the server's clock minus this one, in milliseconds

/** Return the server's time, in milliseconds. */
export const serverNow = () => Date.now() + ahead;

setInterval(() => (tick.value = serverNow()), 1000);

/**
 * Set the clock by the Date header of an answer to a request sent at a time of this clock; small differences say nothing.
 * Servers write the header once a second, in whole seconds, and an answer may be late: the clock is set to the latest that
 * theirs may be, so that an event just added is not in the future, and stays while it is none that theirs cannot be.
 */
export function setClockBy(header, sent) {
  const least = Date.parse(header) - Date.now();
  const most = Date.parse(header) + 2000 - sent;
  const next = least <= 2000 && most >= 0 ? 0 : most;
  const mayBe = least + 500 <= ahead && ahead <= most + 1500;
  if (Math.abs(next - ahead) > 1500 && !mayBe) {
    ahead = next;
    tick.value = serverNow();
  }
}

const given = param("at");

/** The moment that is shown: a position (exact), a time, or "" when live. */
export const moment = computed(() => absolute(given.value));

/** The time now, whatever moment is shown. */
export const wall = computed(() => tick.value);

/** Whether the past is shown. */
export const isPast = computed(() => moment.value !== "");

/** The time that ages and countdowns are measured from, in milliseconds: the moment shown, or now. */
export const now = computed(() => (moment.value ? millisOf(moment.value) : tick.value));

/** Return the milliseconds of a position or an ISO time. */
export function millisOf(text) {
  const position = /^(?:\d{1,5}\/)?(\d{1,15})-\d{1,15}(?:,|$)/.exec(text);
  return position ? Number(position[1]) : Date.parse(text);
}

/** Order two times of the API, the earlier first. As texts, "…:35Z" would follow "…:35.6Z"; without the Z it precedes. */
export function compareTimes(a, b) {
  if (a === b) return 0;
  return a.slice(0, -1) < b.slice(0, -1) ? -1 : 1;
}

/** Return a position just after one, or just after all events of a time; what is neither stays as it is. */
export function beyond(at) {
  if (/^[\d/]+-\d+$/.test(at)) return at.replace(/\d+$/, (seq) => String(Number(seq) + 1));
  const ms = millisOf(at);
  return Number.isNaN(ms) ? at : `${ms + 1}-0`;
}

/** Return the position of an event, or of the last event that an observation folded. */
export const positionOf = ({ position, shard, ms, seq }) => position ?? `${shard ? `${shard}/` : ""}${ms}-${seq}`;

const UNITS = [["d", 86_400_000], ["h", 3_600_000], ["m", 60_000], ["s", 1000]];

/** Return a duration in its two largest units: "3d 4h", "5m 12s", "0s". */
export function duration(ms) {
  const at = UNITS.findIndex(([, size]) => ms >= size);
  if (at < 0) return "0s";
  const [unit, size] = UNITS[at];
  const whole = Math.floor(ms / size);
  const [below, smaller] = UNITS[at + 1] ?? [];
  const rest = below ? Math.floor((ms - whole * size) / smaller) : 0;
  return rest && whole < 10 ? `${whole}${unit} ${rest}${below}` : `${whole}${unit}`;
}

const pad = (number, width = 2) => String(number).padStart(width, "0");

/** Return the time of day, 14:02:07 or 14:02:07.123. */
export function clock(ms, precise = false) {
  const date = new Date(ms);
  const text = `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
  return precise ? `${text}.${pad(date.getMilliseconds(), 3)}` : text;
}

/** Return day and time, 2026-11-22 14:02:07, in this browser's zone. */
export const stamp = (ms, precise = false) => `${day(ms)} ${clock(ms, precise)}`;

/** Return day and time with the offset of this browser's zone, 2026-11-22 14:02:07.123 UTC+01:00. */
export function zoned(ms) {
  const offset = -new Date(ms).getTimezoneOffset();
  return `${stamp(ms, true)} UTC${offset < 0 ? "-" : "+"}${pad(Math.trunc(Math.abs(offset) / 60))}:${pad(Math.abs(offset) % 60)}`;
}

/** Return the day, 2026-11-22. */
export function day(ms) {
  const date = new Date(ms);
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
}

const AGO = /^-?\s*(\d+(?:\.\d+)?)\s*(s|m|h|d|w)(?:\s+ago)?$/i;
const DAY_AND_TIME = /^(?:(today|yesterday|\d{4}-\d\d-\d\d)[ T]*)?(?:(\d{1,2}):(\d\d)(?::(\d\d)(?:\.(\d{1,3}))?)?)?$/i;
const DIGITS = /^\d{9,15}$/; // milliseconds
const MAX_MS = 8.64e15; // that a Date can be

/**
 * Return the milliseconds of a time that somebody typed, or null: 14:02, 14:02:07.5, yesterday 9:30, 2026-11-22 14:02,
 * 5m ago, an ISO time or a position. A time of day alone is the last such time before `reference`.
 */
export function parseTime(typed, reference = serverNow()) {
  const text = typed.trim();
  if (!text) return null;
  const ago = AGO.exec(text);
  if (ago) return reference - Number(ago[1]) * { s: 1e3, m: 6e4, h: 36e5, d: 864e5, w: 6048e5 }[ago[2].toLowerCase()];
  const match = DAY_AND_TIME.exec(text);
  if (match) return ofDay(match, reference);
  const ms = DIGITS.test(text) ? Number(text) : millisOf(text);
  return Number.isNaN(ms) ? null : ms;
}

/** Return what somebody typed into an address, such as "2m ago", as an ISO time, "" if it is to come; other text as it is. */
function absolute(text) {
  if (![AGO, DAY_AND_TIME, DIGITS].some((each) => each.test(text.trim()))) return text;
  const ms = parseTime(text);
  if (ms === null || Math.abs(ms) > MAX_MS) return text;
  return ms < serverNow() ? new Date(ms).toISOString() : "";
}

function ofDay([, name, hours, minutes, seconds, fraction], reference) {
  const date = name && /^\d/.test(name) ? new Date(`${name}T00:00:00`) : new Date(reference);
  if (Number.isNaN(date.getTime()) || Number(hours) > 23 || Number(minutes) > 59 || Number(seconds) > 59) return null;
  if (name?.toLowerCase() === "yesterday") date.setDate(date.getDate() - 1);
  date.setHours(Number(hours ?? 0), Number(minutes ?? 0), Number(seconds ?? 0), Number((fraction ?? "0").padEnd(3, "0")));
  if (!name && date.getTime() > reference) date.setDate(date.getDate() - 1);
  return date.getTime();
}

// what was typed relative to now is kept as the time it was, so that a copied address shows the same
effect(() => {
  if (given.value !== moment.value) go({ at: moment.value }, { replace: true });
});
