// The page with and without some sources, at one moment, and the differences.
import { get, pagePath, read } from "../../lib/api.js";
import { byPriority, statusesOf, whole } from "../../lib/observation.js";
import { moment } from "../../lib/time.js";

const STEP = 1000;
const MAX_OBSERVATIONS = 5000;

/** Return {rows, sources, at, silent, more} of a page, at the moment shown or, live, after the last event. */
export async function compare(page, silent, withClosed, signal) {
  const at = moment.peek() || (await get("/events", { last: 1 }, { signal })).position;
  const status = withClosed ? [] : statusesOf("open");
  const [actual, without, differences, sources] = await Promise.all([
    list(page, status, at, "", signal),
    silent ? list(page, status, at, silent, signal) : null,
    silent ? read(pagePath(page, "diff"), { from: at, to: at }, { at: "", silent, signal }) : { items: [] },
    sourcesOf(page, at, signal),
  ]);
  return { rows: rowsOf(actual, without ?? actual, differences.items, withClosed), sources, at, silent: silent ? silent.split(",") : [], more: actual.more };
}

async function list(page, status, at, silent, signal) {
  const found = new Map();
  let after = null;
  do {
    const answer = await read(pagePath(page, "observations"), { status, limit: STEP, after }, { at, silent, signal });
    for (const each of answer.items) found.set(each.id, whole(each));
    after = answer.next;
  } while (after && found.size < MAX_OBSERVATIONS);
  found.more = Boolean(after);
  return found;
}

/** Return every source of the page and its history up to then, those with the most observations first. */
async function sourcesOf(page, at, signal) {
  const counts = new Map();
  const all = await list(page, [], at, "", signal);
  for (const { source } of all.values()) counts.set(source, (counts.get(source) ?? 0) + 1);
  const before = await get("/events", { last: STEP, page }, { signal });
  for (const { by, source } of before.items) for (const each of [by, source]) if (each && !counts.has(each)) counts.set(each, 0);
  return [...counts].map(([name, count]) => ({ name, count })).sort((a, b) => b.count - a.count || (a.name < b.name ? -1 : 1));
}

/** Return [{id, kind, actual, without, fields}] by priority; `kind` is "same", "gone", "changed" or "added". */
function rowsOf(actual, without, differences, withClosed) {
  const kinds = { gone: "gone", added: "added", changed: "changed" };
  const differing = new Map(differences.map(({ difference, id, before, after, fields }) => [id, { kind: kinds[difference], before: before && whole(before), after: after && whole(after), fields }]));
  const rows = [...new Set([...actual.keys(), ...without.keys()])].map((id) => {
    const found = differing.get(id);
    return { id, kind: found?.kind ?? "same", actual: actual.get(id) ?? found?.before ?? null, without: without.get(id) ?? found?.after ?? null, fields: found?.fields ?? {} };
  });
  return rows.filter((row) => withClosed || isOpen(row.actual) || isOpen(row.without)).sort((a, b) => byPriority(a.actual ?? a.without, b.actual ?? b.without));
}

const isOpen = (observation) => observation?.status_class === "open";
