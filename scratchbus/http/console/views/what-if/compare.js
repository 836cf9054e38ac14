// The page with and without some sources, at one moment, and the differences.
import { get, pagePath, read } from "../../lib/api.js";
import { byPriority, listPage, statusesOf, whole } from "../../lib/observation.js";
import { count, visible } from "../../lib/text.js";
import { beyond, compareTimes, moment } from "../../lib/time.js";

const EVENTS = 1000; // the last ones, whose authors are sources too
const MAX_OBSERVATIONS = 5000;

/**
 * Return {rows, sources, at, silent, more, counted} of a page, at the moment shown or, live, after the last event.
 * `more` says that the page has older rows, `counted` of how many observations the sources are if there are more.
 * `onProgress(text)` is told what is done meanwhile.
 */
export async function compare(page, silent, withClosed, signal, onProgress) {
  const at = moment.peek() || (await get("/events", { last: 1 }, { signal })).position;
  const list = (statuses) =>
    listPage(page, statuses, MAX_OBSERVATIONS, { at, silent: "", signal, onProgress: (rows) => onProgress(count(rows, statuses.length ? "open observation" : "observation")) });
  const found = silent ? read(pagePath(page, "diff"), { from: at, to: at }, { at: "", silent, signal }) : { items: [] };
  const listed = listBoth(list, withClosed).then(async ([all, actual]) => {
    if (silent) onProgress(`comparing with the page without ${visible(silent.replaceAll(",", ", "))}`);
    return { all, actual, sources: await sourcesOf(page, all.rows, at, signal) };
  });
  const [{ all, actual, sources }, differences] = await Promise.all([listed, found]);
  return { rows: rowsOf(actual, differences.items, withClosed), sources, at, silent: silent ? silent.split(",") : [], more: actual.more, counted: all.more ? all.rows.size : 0 };
}

/** Return the newest observations, and the newest of those shown, which are other ones if not all were listed. */
async function listBoth(list, withClosed) {
  const all = await list([]);
  if (withClosed) return [all, all];
  if (all.more) return [all, await list(statusesOf("open"))];
  return [all, { rows: new Map([...all.rows].filter(([, each]) => isOpen(each))), more: false }];
}

/** Return every source of the page and its history up to then, those with the most observations first. */
async function sourcesOf(page, rows, at, signal) {
  const counts = new Map();
  for (const { source } of rows.values()) counts.set(source, (counts.get(source) ?? 0) + 1);
  const recent = await get("/events", { last: EVENTS, before: beyond(at), page }, { signal });
  for (const { by, source } of recent.items) for (const each of [by, source]) if (each && !counts.has(each)) counts.set(each, 0);
  return [...counts].map(([name, said]) => ({ name, count: said })).sort((a, b) => b.count - a.count || (a.name < b.name ? -1 : 1));
}

/** Return [{id, kind, actual, without, fields}] by priority, of what is listed and not older; `kind` is "same", "gone", "changed" or "added". */
function rowsOf({ rows: listed, more }, differences, withClosed) {
  const rows = new Map([...listed].map(([id, each]) => [id, { id, kind: "same", actual: each, without: each, fields: {} }]));
  const oldest = more ? [...listed.values()].at(-1).created_at : null;
  for (const { difference: kind, id, before, after, fields } of differences) {
    if (oldest && !listed.has(id) && compareTimes((before ?? after).created_at, oldest) < 0) continue;
    rows.set(id, { id, kind, actual: before ? whole(before) : null, without: after ? whole(after) : null, fields: fields ?? {} });
  }
  return [...rows.values()].filter((row) => withClosed || isOpen(row.actual) || isOpen(row.without)).sort((a, b) => byPriority(a.actual ?? a.without, b.actual ?? b.without));
}

const isOpen = (observation) => observation?.status_class === "open";
