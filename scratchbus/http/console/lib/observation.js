// Observation documents omit default values; here they are completed, listed and compared.
import { pagePath, read } from "./api.js";
import { types } from "./state.js";
import { compareTimes } from "./time.js";

const STEP = 1000; // rows a request

const BEGINNING = {
  links: [], evidence: [], blocked_by: [], occurrences: 1, claim: null, expires_at: null, status_class: "open", reason: null,
  reason_code: null, chain: [], attempts: 0, remind_at: null, not_before: null, every: null, due_at: null, archive_at: null,
};

/** Return an observation with every field. */
export const whole = (document) => ({ ...BEGINNING, ...document });

/** Return the observations of a page with any of these statuses, {rows: Map(id → observation), more}: about `most`. `onProgress(rows)` is told how many there are so far, while more follow. */
export async function listPage(page, status, most, { onProgress, ...options }) {
  const rows = new Map();
  let after = null;
  do {
    const answer = await read(pagePath(page, "observations"), { status, limit: STEP, after }, options);
    for (const each of answer.items) rows.set(each.id, whole(each));
    after = answer.next;
    if (after) onProgress?.(rows.size);
  } while (after && rows.size < most);
  return { rows, more: Boolean(after) };
}

/** By priority, then the newest first: the order of a page. */
export const byPriority = (a, b) => b.priority - a.priority || compareTimes(b.created_at, a.created_at);

/** Return the lifecycle of a type, {statuses: {status: class}, transitions: {status: [status, …]}}, or null. */
export const lifecycleOf = (type) => types.value[type]?.lifecycle ?? null;

/** Return whether an observation may change to a status. */
export function mayBecome({ type, status }, to) {
  const allowed = lifecycleOf(type)?.transitions[status];
  return allowed ? allowed.includes(to) : true;
}

/** Return every status of a class, "open", "closed" or "final", over all types. */
export function statusesOf(wanted) {
  const found = new Set({ open: ["active", "pending_review"], closed: ["resolved"], final: ["archived"] }[wanted]);
  for (const { lifecycle } of Object.values(types.value)) {
    for (const [status, itsClass] of Object.entries(lifecycle?.statuses ?? {})) if (itsClass === wanted) found.add(status);
  }
  return [...found];
}

/** Return every status there is, over all types. */
export const allStatuses = () => ["open", "closed", "final"].flatMap(statusesOf);

const COMPARED = ["content", "status", "owner", "confidence", "tags", "context", "metadata", "expires_at", "claim", "occurrences", "links", "evidence"];

/** Return the names of the fields that differ between two versions. */
export const changedFields = (before, after) => COMPARED.filter((name) => JSON.stringify(before[name]) !== JSON.stringify(after[name]));
