// One event stream for the whole console. It resumes after the last event, so each event arrives exactly once.
import { signal, effect } from "./base.js";
import { address, get } from "./api.js";
import { checkCaller, connection, probe, reloadAll } from "./connection.js";
import { EVENT_KINDS } from "./kinds.js";

const HIDDEN_FOR = 5_000; // then the stream ends: a browser has only six connections to one server, for all its tabs
const SOONEST = 300; // milliseconds until a stream that broke is opened again
const LATEST = 10_000;

const listeners = new Set();
let delay = SOONEST;
let source = null;
let last = null; // the bus position after the last event that came
let waiting = [];
let hiding = 0;
let isUnseen = document.hidden; // such as a tab opened in the background: it only notes where the log ends
let isOpening = false;
let hasMissed = false; // whether the end of the log could not be read when the views were loaded

/** How many events have come since the console was opened. */
export const received = signal(0);

/** Whether the caller may not read events, so that nothing shown changes by itself. */
export const isDenied = signal(false);

/** Call `listener` with events as they come, several at a time, oldest first. Returns what ends it. */
export function onEvents(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Start, and restart whenever server and engine are there again. */
export function startStream() {
  effect(() => {
    const { state } = connection.value;
    if (state === "live" || state === "connecting") open();
    else close();
  });
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hiding);
    if (document.hidden) hiding = setTimeout(() => ((isUnseen = true), close()), HIDDEN_FOR);
    else (isUnseen = false), open();
  });
}

async function open() {
  if (source || isOpening || !["live", "connecting"].includes(connection.peek().state)) return;
  isOpening = true;
  try {
    if (last === null) {
      last = await endOfLog();
      if (hasMissed) reloadAll(); // what came since the views were loaded is before this end
      hasMissed = false;
    }
    connect();
  } catch {
    hasMissed = last === null;
    probe();
    if (!isDenied.peek()) openLater();
  } finally {
    isOpening = false;
  }
}

/** Return the position after the last event; it also says whether the caller may read events. */
async function endOfLog() {
  try {
    const { position } = await get("/events", { last: 1 });
    isDenied.value = false;
    return position;
  } catch (error) {
    isDenied.value = error.status === 403;
    throw error;
  }
}

/** Try again, less and less often. */
function openLater() {
  setTimeout(open, delay);
  delay = Math.min(2 * delay, LATEST);
}

function connect() {
  if (source || isUnseen) return;
  source = new EventSource(address("/events", { after: last }));
  for (const kind of EVENT_KINDS) source.addEventListener(kind, take);
  for (const name of ["position-lost", "rewound"]) source.addEventListener(name, restart);
  source.onopen = opened;
  source.onerror = again;
}

function opened() {
  delay = SOONEST;
  isDenied.value = false;
  checkCaller(); // it does not end when scopes changed before it began
}

/** After the stream broke: find out why, and try again. */
async function again() {
  close();
  await probe();
  await endOfLog().catch(() => {}); // a stream does not say that one may no longer listen; this does
  checkCaller(); // it also ends when the scopes of the token change
  if (!isDenied.peek()) openLater();
}

function take(message) {
  last = message.lastEventId;
  waiting.push(JSON.parse(message.data));
  if (waiting.length === 1) setTimeout(pass, document.hidden ? 250 : 30);
}

function pass() {
  const events = waiting;
  waiting = [];
  received.value += events.length;
  for (const listener of listeners) listener(events);
}

/** The log is not the one that was read so far: begin at its end, and load everything again. */
function restart() {
  last = null;
  close();
  reloadAll();
  open();
}

/** Listen again, as who the caller is now. */
export function reopen() {
  close();
  open();
}

function close() {
  source?.close();
  source = null;
}
