// What the whole console knows: the page, who speaks and what they may do, and how it looks.
import { signal, computed, effect } from "./base.js";
import { get } from "./api.js";
import { callerChecks, epoch, reloadAll } from "./connection.js";
import { onEvents, reopen } from "./live.js";
import { param } from "./route.js";

/** The page shown. */
export const page = param("page", "main");

/** The id of the selected observation, or "". */
export const selected = param("selected");

/** Who speaks, {name, source, scopes, may_name_source}, or null until the server has said. */
export const caller = signal(null);

/** Whether the caller has a scope: read, publish, act, admin or memory. */
export const may = (scope) => caller.value?.scopes.includes(scope) ?? false;

/** The pages of the bus, [{name, open, …}]. */
export const pages = signal([]);

/** Whether `pages` is what the server has said. */
export const arePagesLoaded = signal(false);

/** The observation types, {name: {priority, description, …}}. */
export const types = signal({});

/** The names of the types, the highest priority first. */
export const typeNames = computed(() => Object.values(types.value).sort((a, b) => b.priority - a.priority).map(({ name }) => name));

const asked = new Map(); // {last, kept} by resource: an answer that comes after that of a later request is dropped

effect(() => {
  epoch.value;
  callerChecks.value;
  ask("/me", knowCaller);
});

/** Take who speaks; what is shown was for another one, or other scopes, if they differ from before. */
function knowCaller(answer) {
  const before = caller.peek();
  caller.value = answer;
  if (before === null || JSON.stringify(before) === JSON.stringify(answer)) return;
  reopen();
  reloadAll();
}

effect(() => {
  epoch.value;
  loadTypes();
  loadPages();
});

let waiting = 0;
onEvents((events) => {
  if (events.some(({ kind }) => kind === "types_changed")) loadTypes();
  waiting ||= setTimeout(() => ((waiting = 0), loadPages()), 3000);
});

function loadTypes() {
  return ask("/types", (answer) => (types.value = Object.fromEntries(answer.items.map((each) => [each.name, each]))));
}

/** Load the pages and their counts. */
export function loadPages() {
  return ask("/pages", (answer) => ((pages.value = answer.items), (arePagesLoaded.value = true)));
}

async function ask(resource, keep) {
  const state = asked.get(resource) ?? { last: 0, kept: 0 };
  asked.set(resource, state);
  const mine = ++state.last;
  try {
    const answer = await get(resource);
    if (mine > state.kept) (state.kept = mine), keep(answer);
  } catch {
    // the banner says that the server is away; all of this is loaded again when it is back
  }
}

const remembered = (name, otherwise) => {
  const kept = signal(localStorage.getItem(name) ?? otherwise);
  effect(() => localStorage.setItem(name, kept.value));
  addEventListener("storage", ({ key, newValue }) => key === name && (kept.value = newValue ?? otherwise)); // another tab
  return kept;
};

/** "auto", "light" or "dark". */
export const theme = remembered("theme", "auto");
const dark = matchMedia("(prefers-color-scheme: dark)");
const systemDark = signal(dark.matches);
dark.addEventListener("change", () => (systemDark.value = dark.matches));

/** Whether dark colours are shown. */
export const isDark = computed(() => (theme.value === "auto" ? systemDark.value : theme.value === "dark"));
effect(() => document.documentElement.setAttribute("data-theme", isDark.value ? "dark" : "light"));

/** Whether single keys are shortcuts, "on" or "off". */
export const shortcuts = remembered("shortcuts", "on");
