// The observations of a page, kept up to date by events, and the changes since the user last looked.
import { signal, useEffect, useMemo, useRef, useSignal, useState } from "../../lib/base.js";
import { pagePath, Problem, read, without } from "../../lib/api.js";
import { onEvents } from "../../lib/live.js";
import { useLoad } from "../../lib/load.js";
import { allStatuses, byPriority, listPage, statusesOf, whole } from "../../lib/observation.js";
import { count } from "../../lib/text.js";
import { isPast, moment } from "../../lib/time.js";

const MAX_OBSERVATIONS = 20_000;
const FIRST = 100; // the most urgent observations, shown while a long page is loaded
const FEW = 12; // up to so many changed observations are asked for one by one

/** Return {rows, error, loaded, progress, more, reload, away}; `progress` is how many rows of a long page have been loaded so far; `names` are statuses, of which unknown ones, half typed, do not count; none for all open ones. */
export function usePage(page, names) {
  const known = ["open", "all", ...allStatuses()];
  const wanted = names.filter((each) => known.includes(each));
  const statuses = wanted.length === 0 ? statusesOf("open") : wanted.includes("all") ? [] : wanted.flatMap((each) => (each === "open" ? statusesOf("open") : [each]));
  const key = statuses.join();
  const kept = useSignal(new Map());
  const arriving = useRef(null); // the ids that events have changed since the load on its way began
  const follower = useRef(null);
  const [progress, setProgress] = useState(0);
  const { data, error, reload } = useLoad(async (signal) => {
    const changed = (arriving.current = new Set());
    let asksForFirst = !isPast.peek() && !without.peek() && (!statuses.length || statuses.includes("active"));
    const onProgress = async (size) => {
      setProgress(size);
      if (!asksForFirst) return;
      asksForFirst = false;
      const answer = await read(pagePath(page, "active"), { limit: FIRST }, { signal }).catch(() => null);
      if (!answer || arriving.current !== changed) return; // the whole page has come, or is loaded again
      kept.value = new Map([...answer.items.filter(({ id }) => !changed.has(id)).map((each) => [each.id, whole(each)]), ...[...kept.peek()].filter(([id]) => changed.has(id))]);
    };
    return { ...(await listPage(page, statuses, MAX_OBSERVATIONS, { signal, onProgress: data ? undefined : onProgress })), changed };
  }, [page, key]);

  useEffect(() => {
    follower.current = follow(page, statuses, kept, reload, arriving);
    return follower.current.stop;
  }, [page, key]);
  useEffect(() => {
    if (!data) {
      if (error) kept.value = new Map(); // such as after the token lost the scope
      return;
    }
    kept.value = data.rows;
    if (arriving.current === data.changed) arriving.current = null;
    follower.current.ask(data.changed); // these rows may be older than what the events said
  }, [data]);

  const rows = useMemo(() => [...kept.value.values()].sort(byPriority), [kept.value]);
  const away = useAway(kept.value, `${page} ${key} ${moment.value}`, data !== null);
  return { rows, error, loaded: data !== null, progress, more: data?.more ?? false, reload, away };
}

/** Ask again for what events change, a few at once; many are one load of the page. Return {stop, ask(ids)}. */
function follow(page, statuses, kept, reload, arriving) {
  const changed = new Set();
  let running = false;
  const settle = async () => {
    running = true;
    while (changed.size && !isPast.peek()) {
      const ids = [...changed];
      changed.clear();
      if (ids.length > FEW) await reload();
      else await Promise.all(ids.map((id) => refresh(page, id, statuses, kept)));
    }
    running = false;
  };
  const ask = (ids) => {
    for (const id of ids) changed.add(id);
    if (changed.size && !running && !isPast.peek()) settle();
  };
  const stop = onEvents((events) => {
    const ids = events.filter((event) => event.page === page && /^[0-9A-Z]{26}$/.test(event.subject)).map(({ subject }) => subject);
    for (const id of ids) arriving.current?.add(id);
    ask(ids);
  });
  return { stop, ask };
}

async function refresh(page, id, statuses, kept) {
  const silent = without.peek();
  let found = null;
  try {
    found = whole(await read(pagePath(page, "observations", id), {}, { at: "", silent }));
  } catch (error) {
    if (!(error instanceof Problem) || error.status !== 404) return; // the banner says what is wrong; all loads again after
  }
  if (isPast.peek() || silent !== without.peek()) return;
  const rows = new Map(kept.peek());
  const before = rows.get(id);
  if (found && before && before.version > found.version) return;
  if (found && (!statuses.length || statuses.includes(found.status))) rows.set(id, found);
  else rows.delete(id);
  kept.value = rows;
}

const looking = signal(!document.hidden);
document.addEventListener("visibilitychange", () => (looking.value = !document.hidden));

/** What differs from when the window was last in sight: {count, text, has(id), clear}. */
function useAway(rows, context, loaded) {
  const seen = useRef(null); // versions by id, from when the window went out of sight
  const kept = useRef({ context, rows, loaded });
  const cleared = useSignal(0);
  if (kept.current.context !== context) seen.current = null;
  kept.current = { context, rows, loaded };
  useEffect(() => {
    if (!looking.value && !seen.current && kept.current.loaded) {
      seen.current = new Map([...kept.current.rows].map(([id, { version }]) => [id, version]));
    }
  }, [looking.value]);
  cleared.value; // a clear renders again
  const versions = looking.value ? seen.current : null;
  const fresh = versions ? [...rows.values()].filter(({ id, version }) => versions.get(id) !== version) : [];
  const left = versions ? [...versions.keys()].filter((id) => !rows.has(id)).length : 0;
  const added = fresh.filter(({ id }) => !versions.has(id)).length;
  const ids = new Set(fresh.map(({ id }) => id));
  const parts = [[added, "new"], [fresh.length - added, "changed"], [left, "left"]].filter(([number]) => number);
  return {
    count: fresh.length + left,
    text: parts.map(([number, word]) => count(number, word, word)).join(", "),
    has: (id) => ids.has(id),
    clear: () => ((seen.current = null), cleared.value++),
  };
}
