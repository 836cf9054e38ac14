// The URL is the state: view, page, moment, filter and selection are all in it, so a link shows the same.
// It reads #/now?page=main&at=1795386059871-6&q=type:risk_alert&selected=01M82N…
import { signal, computed } from "./base.js";

/** Parameters that stay when the view changes; every other one belongs to its view. */
const KEPT = ["page", "at", "without", "selected", "span"];

const PAUSE = 350; // milliseconds between two replacements: browsers ignore or refuse more than 100 in half a minute

const parse = (address) => {
  const [path, query = ""] = address.replace(/^#\/?/, "").split("?");
  return { view: decoded(path) || "now", params: Object.fromEntries(new URLSearchParams(query)) };
};

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a % that encodes nothing
  }
}

/** The address as {view, params}. */
export const route = signal(parse(location.hash));

let shown = location.hash; // the address of `route`
let written = shown; // the one that the browser has; that of `route` follows when several replace each other
let replacedAt = -Infinity;
let timer = 0;

addEventListener("hashchange", () => show((written = location.hash)));
addEventListener("click", settle, true); // such as on a link, or on what copies the address
addEventListener("pagehide", settle);

function show(address) {
  shown = address;
  route.value = parse(address);
}

/** Let the browser have the address that is shown, unless it has gone to another one meanwhile. */
function settle() {
  clearTimeout(timer);
  timer = 0;
  if (shown === written || location.hash !== written) return;
  history.replaceState(null, "", shown);
  written = location.hash;
  replacedAt = performance.now();
}

/** Return the address of a view as a link. `changes` set parameters; null or "" removes one. */
export function link(changes = {}, view = route.peek().view) {
  const { params, view: from } = route.peek();
  const kept = view === from ? { ...params } : pick(params, KEPT);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === "") delete kept[name];
    else kept[name] = String(value);
  }
  const query = new URLSearchParams(kept).toString().replaceAll("%3A", ":").replaceAll("%2C", ",").replaceAll("%2F", "/");
  return `#/${encodeURIComponent(view)}${query ? `?${query}` : ""}`;
}

/** Change parameters, and the view if one is given. With `replace`, the back button skips the change. */
export function go(changes = {}, { view, replace = false } = {}) {
  const address = link(changes, view);
  if (address === shown) return;
  if (!replace) {
    settle();
    history.pushState(null, "", address);
    written = location.hash;
  }
  show(address);
  const wait = replacedAt + PAUSE - performance.now();
  if (wait > 0) timer ||= setTimeout(settle, wait);
  else settle();
}

/** Return a signal of one parameter of the address; an empty one is as one that is missing. */
export const param = (name, otherwise = "") => computed(() => route.value.params[name] || otherwise);

const pick = (object, names) => Object.fromEntries(names.filter((name) => name in object).map((name) => [name, object[name]]));
