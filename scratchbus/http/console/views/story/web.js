// The evidence of an observation and the observations based on it, at the moment shown.
import { pagePath, read } from "../../lib/api.js";
import { whole } from "../../lib/observation.js";

const MAX_NODES = 150; // observations in the graph

/** Return {all, nodes, edges, seen, followed, events}; `nodes` are the nearest of `all`, Map(id → {observation, side}); `side` is "below", "self" or "above". */
export async function loadWeb(page, id, signal) {
  const of = (name) => read(pagePath(page, "observations", id, name), {}, { signal });
  const [{ observations, events }, evidence, exposure] = await Promise.all([of("consequences"), of("evidence"), of("exposure")]);
  const all = new Map();
  for (const each of evidence.items) all.set(each.id, { observation: whole(each), side: "below" });
  for (const each of Object.values(observations)) all.set(each.id, { observation: whole(each), side: each.id === id ? "self" : "above" });
  const near = byDistance(all, id).slice(0, MAX_NODES);
  const nodes = new Map(near.map((key) => [key, all.get(key)]));
  return { all, nodes, edges: edgesOf(nodes), seen: exposure.seen, followed: exposure.actions, events };
}

const edgesOf = (nodes) => [...nodes.values()].flatMap(({ observation }) =>
  observation.evidence.filter((id) => nodes.has(id)).map((id) => ({ from: id, to: observation.id })));

/** Return the ids, those with the fewest steps to `start` first. */
function byDistance(all, start) {
  const neighbours = new Map([...all.keys()].map((id) => [id, []]));
  for (const { observation } of all.values()) {
    for (const id of observation.evidence) if (all.has(id)) neighbours.get(id).push(observation.id), neighbours.get(observation.id).push(id);
  }
  const found = new Set([start]);
  for (const id of found) for (const next of neighbours.get(id) ?? []) found.add(next);
  return [...found].filter((id) => all.has(id));
}
