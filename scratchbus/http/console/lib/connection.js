// Whether the server and its engine are reachable. After an outage `epoch` changes, and views reload.
import { signal } from "./base.js";
import { serverNow } from "./time.js";

/**
 * {state, since, detail, secret}; state is "connecting", "live", "server-away", "engine-away" or "signed-out", and `secret`
 * what signs in: a "key" of the server's start, or a "token".
 */
export const connection = signal({ state: "connecting", since: serverNow(), detail: "", secret: "token" });

/** Changes whenever what is shown may have missed something: after an outage, a rewound log, a lost position. */
export const epoch = signal(0);

/** Say that everything shown has to be loaded again. */
export const reloadAll = () => epoch.value++;

/** Why a part of the console is missing, or "". A browser asks for a module only once, until the page is loaded again. */
export const missing = signal("");

/** Call `use` with what the modules and style sheets of a part of the console load to; if it cannot be loaded, the banner says so. */
export const whenLoaded = (part, use) => part.then(use, ({ message }) => (missing.value = message));

/** Changes whenever the caller may be another one, or have other scopes. */
export const callerChecks = signal(0);

let checking = 0;

/** Ask soon who speaks: the scopes of a token may have changed, or another tab may have signed in. */
export function checkCaller() {
  checking ||= setTimeout(() => ((checking = 0), callerChecks.value++), CHECK_AFTER);
}

const CHECK_AFTER = 200; // milliseconds, in which several reasons become one
const PATIENT = 5000;
const EAGER = 700;
let timer = 0;

/** Record what an answer, or its absence, says about server and engine. */
export function noteState(state, detail = "", secret = connection.peek().secret) {
  const before = connection.peek();
  if (before.state === state && before.detail === detail && before.secret === secret) return;
  const since = before.state === state ? before.since : serverNow();
  connection.value = { state, since, detail, secret };
  if (state === "live" && before.state !== "connecting") reloadAll(); // also after signing in, as someone else maybe
  if (state !== before.state) schedule(state === "live" ? PATIENT : EAGER);
}

/** Ask the server now whether it is ready. */
export async function probe() {
  clearTimeout(timer);
  try {
    const answer = await fetch("/readyz", { cache: "no-store", signal: AbortSignal.timeout(PATIENT) });
    if (answer.ok) {
      await answer.arrayBuffer(); // otherwise the request stays open until its time is up
      if (connection.peek().state !== "signed-out") noteState("live");
    } else if (answer.status === 401) noteState("signed-out");
    else noteState("engine-away", await detailOf(answer));
  } catch {
    noteState("server-away");
  }
  schedule(connection.peek().state === "live" ? PATIENT : EAGER);
}

function schedule(delay) {
  clearTimeout(timer);
  timer = setTimeout(() => (document.hidden && delay === PATIENT ? schedule(delay) : probe()), delay);
}

async function detailOf(answer) {
  try {
    return (await answer.json()).detail ?? "";
  } catch {
    return "";
  }
}

/** Ask who speaks when the window is shown: someone may have signed in from another tab. */
async function askAgain() {
  if (document.hidden) return;
  if (connection.peek().state !== "signed-out") return void checkCaller();
  const answer = await fetch("/api/v1/me", { cache: "no-store" }).catch(() => null);
  if (answer?.ok && connection.peek().state === "signed-out") noteState("live");
}

addEventListener("focus", askAgain);
document.addEventListener("visibilitychange", askAgain);
addEventListener("online", probe);
schedule(PATIENT);
