// The knowledge of a scope: its URLs, and reads of it as of the moment shown.
import { get, path } from "../../lib/api.js";
import { param } from "../../lib/route.js";
import { millisOf, moment } from "../../lib/time.js";

const PREFIX = "knowledge:";

/** The moment that is asked about, if it is not the one shown: facts hold from a time until a time. ISO, or "". */
export const valid = param("valid");

/** Return the scopes among the pages of the bus, by name. */
export const scopesOf = (pages) => pages.filter(({ name }) => name.startsWith(PREFIX)).map(({ name }) => name.slice(PREFIX.length)).sort();

/** Return the page on which the events of a scope are. */
export const pageOfScope = (scope) => PREFIX + scope;

/** Return the path of what belongs to a scope. */
export const scopePath = (scope, ...rest) => path("scopes", scope, ...rest);

/** GET something about facts as they were known at the moment shown; with `isTrue`, those that are true at it or at `valid`. */
export function readFacts(scope, rest, query = {}, { signal, isTrue = false } = {}) {
  const at = moment.peek();
  const asked = valid.peek() || (at && new Date(millisOf(at)).toISOString());
  return get(scopePath(scope, "facts", ...rest), { ...query, ...(at ? { known_at: at } : {}), ...(isTrue && asked ? { at: asked } : {}) }, { signal });
}

/** Return whether something that happened at a position was known at the moment shown. */
export function wasKnown(position) {
  const at = moment.peek();
  if (!at) return true;
  const [event, last] = [placeOf(position), placeOf(at)];
  return event && last && event.shard === last.shard ? event.seq <= last.seq : millisOf(position) <= millisOf(at);
}

/** Return {shard, seq} of a position, or null of a time: only within a shard do the numbers say what came first. */
function placeOf(text) {
  const found = /^(?:(\d+)\/)?\d+-(\d+)$/.exec(text);
  return found && { shard: found[1] ?? "0", seq: Number(found[2]) };
}
