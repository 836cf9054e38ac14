// The neighbours of an entity as a graph: edges from subjects to objects, labelled with the relation.
import { html, useMemo } from "../../lib/base.js";
import { useLoad } from "../../lib/load.js";
import { go, link, param } from "../../lib/route.js";
import { count, Text, visible } from "../../lib/text.js";
import { ProblemNote } from "../../ui/problem.js";
import { Canvas, useDagre } from "../../ui/graph.js";
import { pageOfScope, readFacts, valid } from "./scope.js";

const MAX_ENTITIES = 40; // entities of the graph
const MAX_DEPTH = 4;
const LETTER = 6.6; // pixels
const entity = param("entity");
const depth = param("depth", "1");

/** The neighbours of an entity: that of the address, or the subject of the fact. */
export function Neighbours({ scope, fact }) {
  const start = entity.value || fact.subject;
  const deep = Math.max(1, Math.min(MAX_DEPTH, Number(depth.value) || 1));
  const { data, error, reload } = useLoad((signal) => readFacts(scope, ["neighbours"], { entity: start, depth: deep, limit: MAX_ENTITIES }, { signal, isTrue: true }), [scope, start, deep, valid.value], { on: (event) => event.page === pageOfScope(scope) });
  const ends = [fact.subject, fact.object, ...(entity.value && keyOf(entity.value) !== keyOf(fact.subject) && keyOf(entity.value) !== keyOf(fact.object) ? [entity.value] : [])];
  return html`<section aria-labelledby="fact-around"><h3 id="fact-around">Around <${Text} value=${start} /> ${data && html`<small>${count(data.items.length, "neighbour")}${data.items.length >= MAX_ENTITIES ? ", the nearest" : ""}</small>`}</h3>
    <div class="around-form"><label>Entity <select value=${start} onChange=${(event) => go({ entity: event.target.value }, { replace: true })}>${ends.map((name) => html`<option key=${name} value=${name} selected=${name === start}>${visible(name)}</option>`)}</select></label>
      <label>Facts away <select value=${String(deep)} onChange=${(event) => go({ depth: event.target.value === "1" ? null : event.target.value }, { replace: true })}>${Array.from({ length: MAX_DEPTH }, (_, index) => String(index + 1)).map((far) => html`<option key=${far} value=${far} selected=${far === String(deep)}>${far}</option>`)}</select></label></div>
    ${error && html`<${ProblemNote} error=${error} retry=${reload} />`}
    ${data && (data.items.length ? html`<${Graph} start=${start} items=${data.items} />` : html`<p class="hint">No fact that is true at the moment connects it with anything.</p>`)}</section>`;
}

const keyOf = (name) => name.toLowerCase();

function Graph({ start, items }) {
  const dagre = useDagre();
  const web = useMemo(() => webOf(start, items), [start, items]);
  const drawn = useMemo(() => dagre && layOut(dagre, web), [dagre, web]);
  return html`<div class="graph neighbours">${drawn && html`<${Canvas} drawn=${drawn} centre=${keyOf(start)} label="Entities around ${visible(start)}" tallest=${360}
    nodeOf=${(node, onFocus) => html`<${Node} key=${node.key} node=${node} web=${web} isSelf=${node.key === keyOf(start)} onFocus=${onFocus} />`}>
    ${drawn.edges.map((edge) => html`<span key=${`${edge.from} ${edge.to}`} class="graph-relation" aria-hidden="true" style=${{ left: `${edge.x}px`, top: `${edge.y}px` }}>${visible(edge.label)}</span>`)}<//>`}</div>`;
}

/** Return {names: Map(key → name), edges: [{from, to, label}]}: each neighbour with the last fact on the way to it. */
function webOf(start, items) {
  const names = new Map([[keyOf(start), start], ...items.map(({ entity: name }) => [keyOf(name), name])]);
  const edges = new Map();
  for (const { fact } of items) {
    const [from, to] = [fact.subject, fact.object].map((name) => (names.has(keyOf(name)) || names.set(keyOf(name), name), keyOf(name)));
    const known = edges.get(`${from}\n${to}`);
    const label = fact.relation.replaceAll("_", " ");
    edges.set(`${from}\n${to}`, { from, to, label: known ? `${known.label}, ${label}` : label });
  }
  return { names, edges: [...edges.values()] };
}

function layOut({ Graph: Directed, layout }, { names, edges }) {
  const graph = new Directed().setGraph({ rankdir: "LR", nodesep: 12, ranksep: 24, edgesep: 10, marginx: 6, marginy: 6 }).setDefaultEdgeLabel(() => ({}));
  for (const [key, name] of names) graph.setNode(key, { width: Math.min(150, 26 + LETTER * 1.08 * name.length), height: 30 });
  for (const { from, to, label } of edges) graph.setEdge(from, to, { label, width: 12 + LETTER * label.length, height: 18, labelpos: "c" });
  layout(graph);
  const { width, height } = graph.graph();
  const nodes = graph.nodes().map((key) => ({ key, ...graph.node(key) })).sort((a, b) => a.x - b.x || a.y - b.y);
  return { width, height, nodes, edges: graph.edges().map(({ v, w }) => ({ from: v, to: w, ...graph.edge({ v, w }) })) };
}

function Node({ node, web, isSelf, onFocus }) {
  const place = { left: `${node.x - node.width / 2}px`, top: `${node.y - node.height / 2}px`, width: `${node.width}px`, height: `${node.height}px` };
  const name = web.names.get(node.key);
  const said = web.edges.filter(({ from }) => from === node.key).map(({ label, to }) => `${label} ${web.names.get(to)}`);
  return html`<a class="graph-node graph-entity" style=${place} href=${link({ entity: name }, "memory")} aria-current=${isSelf ? "true" : undefined} title=${visible(name)} onFocus=${onFocus}>
    <span class="excerpt" dir="auto"><${Text} value=${name} /></span>${said.length > 0 && html`<span class="visually-hidden">: ${visible(said.join("; "))}</span>`}</a>`;
}
