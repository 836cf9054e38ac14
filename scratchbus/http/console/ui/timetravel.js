// Time travel: to a time, by event, or by playback. The moment is a log position in the URL, so it is exact.
import { signal, untracked } from "../lib/base.js";
import { get } from "../lib/api.js";
import { go } from "../lib/route.js";
import { duration, isPast, millisOf, moment, positionOf, serverNow } from "../lib/time.js";

export const SPEEDS = [1, 2, 5, 10, 30, 100, 300, 1000];

/** {playing, speed, note}. */
export const player = signal({ playing: false, speed: 10, note: "" });

const MAX_PAUSE = 2000; // milliseconds that playing waits for an event; longer pauses are cut short
const FRAME = 80; // milliseconds that a moment stays at least, so that a page can be loaded and seen
const AHEAD = 200; // events fetched at once
const MAX_KEPT_STEPS = 500;

/** How many moments are being asked for. */
export const moving = signal(0);

let owed = 0; // steps that were asked for while one was on its way
let stepping = false;
let going = 0; // the number of the last journey; what an earlier one finds does not count any longer

/** Go back to live. */
export function back() {
  going++;
  owed = 0;
  stopPlaying();
  if (isPast.peek()) go({ at: null });
}

/** Show a moment; from live, the back button returns. */
const show = (at) => at !== moment.peek() && go({ at }, { replace: isPast.peek() });

/** Show what a journey found, unless another one has begun since. */
const arrive = (journey, at) => journey === going && show(at);

/** Go to a time (ms): to the last event that had happened on the page, or on the bus when `pages` is null. */
export async function goTo(ms, pages) {
  if (ms >= serverNow()) return back();
  const journey = ++going;
  moving.value++;
  try {
    const { items } = await get("/events", { last: 1, before: `${Math.floor(ms) + 1}-0`, page: pages });
    arrive(journey, items.length ? positionOf(items[0]) : new Date(ms).toISOString());
  } finally {
    moving.value--;
  }
  return undefined;
}

/** Go `by` events on, or back if it is negative; beyond the last one is live. Quick steps add up. */
export async function step(by, pages) {
  owed = Math.max(-MAX_KEPT_STEPS, Math.min(MAX_KEPT_STEPS, owed + by));
  if (stepping) return;
  stepping = true;
  try {
    while (owed) {
      const now = owed;
      owed = 0;
      await leap(now, pages);
    }
  } finally {
    owed = 0; // also after an error: nobody waits for these steps any longer
    stepping = false;
  }
}

async function leap(by, pages) {
  const at = moment.peek();
  if (by > 0 && !at) return;
  const journey = ++going;
  if (by > 0) {
    const { items } = await get("/events", { after: await exact(at, pages), limit: by, page: pages });
    if (!items.length) return void (journey === going && back());
    arrive(journey, positionOf(items.at(-1)));
    return;
  }
  const before = at ? await exact(at, pages) : undefined;
  const { items } = await get("/events", { last: -by + (before ? 0 : 1), before, page: pages });
  if (before ? items.length : items.length > 1) arrive(journey, positionOf(items[0]));
}

/** Return the position of a moment that may be a time. */
async function exact(at, pages) {
  if (!Number.isNaN(Date.parse(at)) && !/^[\d/]+-\d+$/.test(at)) {
    const { items } = await get("/events", { last: 1, before: `${millisOf(at) + 1}-0`, page: pages });
    return items.length ? positionOf(items[0]) : `${millisOf(at)}-0`;
  }
  return at;
}

let run = 0;

/** Play from the moment shown; from live, from `beginning` (ms). It stops when the user goes to another moment. */
export async function startPlaying(pages, beginning) {
  const mine = ++run;
  player.value = { ...player.peek(), playing: true, note: "" };
  try {
    if (!isPast.peek()) await goTo(beginning ?? 0, pages);
    let current = moment.peek();
    let at = await exact(current, pages);
    let time = millisOf(at);
    for (;;) {
      const { items } = await get("/events", { after: at, limit: AHEAD, page: pages });
      if (!items.length) return run === mine && back();
      for (let index = 0; index < items.length; ) {
        const { speed } = untracked(() => player.value);
        const wait = Math.min(MAX_PAUSE, Math.max(FRAME, (millisOf(positionOf(items[index])) - time) / speed));
        const until = time + wait * speed; // of several events within one frame, the last is shown
        while (index + 1 < items.length && millisOf(positionOf(items[index + 1])) <= until) index++;
        const next = positionOf(items[index++]);
        const gap = millisOf(next) - time;
        player.value = { ...player.peek(), note: gap / speed > MAX_PAUSE ? `${duration(gap)} without events, cut short` : "" };
        await new Promise((resolve) => setTimeout(resolve, wait));
        if (run !== mine) return undefined;
        if (moment.peek() !== current) return stopPlaying();
        show((current = at = next));
        time = millisOf(at);
      }
    }
  } catch {
    if (run === mine) stopPlaying(); // the banner says what is wrong
  }
  return undefined;
}

/** Stop playing. */
export function stopPlaying() {
  run++;
  if (player.peek().playing) player.value = { ...player.peek(), playing: false, note: "" };
}
