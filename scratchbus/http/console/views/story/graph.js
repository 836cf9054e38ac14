// The evidence graph: evidence on the left; on the right, the observations and actions based on the observation.
import { html, useMemo } from "../../lib/base.js";
import { narrow } from "../../lib/screen.js";
import { link } from "../../lib/route.js";
import { page } from "../../lib/state.js";
import { count, Text, visible } from "../../lib/text.js";
import { Canvas, useDagre } from "../../ui/graph.js";

/** `web` is what `loadWeb` returns, `id` the observation that it is about. Edges that a refutation went along are marked. */
export function Graph({ web, id }) {
  const dagre = useDagre();
  const drawn = useMemo(() => dagre && layOut(dagre, web, narrow.value), [dagre, web, narrow.value]);
  return html`<div class="graph">${drawn && html`<${Canvas} drawn=${drawn} centre=${id} label="Evidence and what rests on it" markOf=${({ from, to }) => (isPulledBack(web, from, to) ? "back" : "")}
    nodeOf=${(node, onFocus) => html`<${Node} key=${node.key} node=${node} web=${web} isSelf=${node.key === id} onFocus=${onFocus} />`} />`}</div>`;
}

function layOut({ Graph: Directed, layout }, { nodes, edges }, isNarrow) {
  const size = isNarrow ? { width: 158, height: 58 } : { width: 216, height: 58 };
  const graph = new Directed().setGraph({ rankdir: isNarrow ? "TB" : "LR", nodesep: 14, ranksep: isNarrow ? 34 : 54, marginx: 6, marginy: 6 }).setDefaultEdgeLabel(() => ({}));
  for (const key of nodes.keys()) graph.setNode(key, { ...size });
  for (const { from, to } of edges) graph.setEdge(from, to);
  for (const [key, { observation }] of nodes) {
    for (const action of observation.links) {
      graph.setNode(`action ${action}`, { width: Math.min(size.width, 44 + 7.2 * action.length), height: 30 });
      graph.setEdge(key, `action ${action}`);
    }
  }
  layout(graph);
  const { width, height } = graph.graph();
  const order = graph.nodes().map((key) => ({ key, ...graph.node(key) })).sort((a, b) => (isNarrow ? a.y - b.y || a.x - b.x : a.x - b.x || a.y - b.y));
  return { width, height, nodes: order, edges: graph.edges().map(({ v, w }) => ({ from: v, to: w, points: graph.edge({ v, w }).points })) };
}

/** Return whether a refutation went from one to the other. */
export function isPulledBack({ nodes }, from, to) {
  const chain = nodes.get(to)?.observation.chain ?? [];
  return chain.length > 0 && chain.at(-1) === from;
}

function Node({ node, web, isSelf, onFocus }) {
  const place = { left: `${node.x - node.width / 2}px`, top: `${node.y - node.height / 2}px`, width: `${node.width}px`, height: `${node.height}px` };
  const found = web.nodes.get(node.key);
  if (!found) {
    return html`<span class="graph-action" style=${place} title="Action"><span aria-hidden="true">⤳</span><span class="visually-hidden">Action </span><span class="excerpt" dir="auto"><${Text} value=${node.key.slice(7)} /></span></span>`;
  }
  const { observation } = found;
  const below = observation.evidence.filter((each) => web.nodes.has(each)).length;
  const above = web.edges.filter(({ from }) => from === observation.id).length;
  const mark = observation.reason_code === "refuted" ? "refuted" : observation.chain.length ? "pulled back" : observation.status_class === "open" ? "" : observation.status.replaceAll("_", " ");
  const elsewhere = observation.page === page.value ? {} : { page: observation.page };
  return html`<a class="graph-node status-${observation.status_class} ${mark === "refuted" ? "is-refuted" : mark === "pulled back" ? "is-back" : ""}" style=${place}
    href=${link({ selected: observation.id, ...elsewhere }, "story")} aria-current=${isSelf ? "true" : undefined} onFocus=${onFocus}
    title=${visible(observation.content)}>
    <span class="graph-type"><span class="excerpt" dir="auto">${visible(observation.type)}</span>${mark && html`<span class="graph-mark">${visible(mark)}</span>`}</span>
    <span class="graph-content" dir="auto"><${Text} value=${observation.content} /></span>
    <span class="visually-hidden">, rests on ${count(below, "observation")}; ${count(above, "rests", "rest")} on it</span></a>`;
}
