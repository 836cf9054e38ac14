// The page with and without some sources, at one moment, and the differences.
import { get, pagePath, read } from "../../lib/api.js";
import { byPriority, listPage, statusesOf, whole } from "../../lib/observation.js";
import { beyond, moment } from "../../lib/time.js";

const EVENTS = 1000; // the last ones, whose authors are sources too
const MAX_OBSERVATIONS = 5000;

/** Return {rows, sources, at, silent, more} of a page, at the moment shown or, live, after the last event. */
export async function compare(page, silent, withClosed, signal) {
  const at = moment.peek() || (await get("/events", { last: 1 }, { signal })).position;
  const status = withClosed ? [] : statusesOf("open");
  const list = (statuses, off) => listPage(page, statuses, MAX_OBSERVATIONS, { at, silent: off, signal });
  const [actual, without, differences, sources] = await Promise.all([
    list(status, ""),
    silent ? list(status, silent) : null,
    silent ? read(pagePath(page, "diff"), { from: at, to: at }, { at: "", silent, signal }) : { items: [] },
    list([], "").then((all) => sourcesOf(page, all.rows, at, signal)),
  ]);
  return { rows: rowsOf(actual.rows, (without ?? actual).rows, differences.items, withClosed), sources, at, silent: silent ? silent.split(",") : [], more: actual.more };
}

/** Return every source of the page and its history up to then, those with the most observations first. */
async function sourcesOf(page, rows, at, signal) {
  const counts = new Map();
  for (const { source } of rows.values()) counts.set(source, (counts.get(source) ?? 0) + 1);
  const recent = await get("/events", { last: EVENTS, before: beyond(at), page }, { signal });
  for (const { by, source } of recent.items) for (const each of [by, source]) if (each && !counts.has(each)) counts.set(each, 0);
  return [...counts].map(([name, count]) => ({ name, count })).sort((a, b) => b.count - a.count || (a.name < b.name ? -1 : 1));
}

/** Return [{id, kind, actual, without, fields}] by priority; `kind` is "same", "gone", "changed" or "added". */
function rowsOf(actual, without, differences, withClosed) {
  const differing = new Map(differences.map(({ difference: kind, id, before, after, fields }) => [id, { kind, before: before && whole(before), after: after && whole(after), fields }]));
  const rows = [...new Set([...actual.keys(), ...without.keys()])].map((id) => {
    const found = differing.get(id);
    return { id, kind: found?.kind ?? "same", actual: actual.get(id) ?? found?.before ?? null, without: without.get(id) ?? found?.after ?? null, fields: found?.fields ?? {} };
  });
  return rows.filter((row) => withClosed || isOpen(row.actual) || isOpen(row.without)).sort((a, b) => byPriority(a.actual ?? a.without, b.actual ?? b.without));
}

const isOpen = (observation) => observation?.status_class === "open";
