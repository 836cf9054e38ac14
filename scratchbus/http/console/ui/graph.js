// A graph on a canvas, laid out by dagre, which is loaded on demand: pan, zoom, and the focused node scrolled into view.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../lib/base.js";
import { whenLoaded } from "../lib/connection.js";
import { useKeys } from "../lib/keys.js";
import { printing } from "../lib/screen.js";

const MAX_SCALE = 1.25;
const MIN_SCALE = 0.25;
const READABLE = 0.72; // below it, the whole graph is not shown at once
const TALLEST = 440;
const PAPER = 680; // pixels, the width of a sheet without its margins

/** Return the library that lays graphs out, {Graph, layout}, or null until it is there. */
export function useDagre() {
  const [dagre, setDagre] = useState(null);
  useEffect(() => void whenLoaded(import("../vendor/dagre.js"), setDagre), []);
  return dagre;
}

/**
 * A drawing that is moved, enlarged, and walked through with the keyboard. `drawn` has {width, height, nodes: [{key, x, y,
 * width, height}], edges: [{from, to, points}]}; `centre` is the key of the node in the middle. `nodeOf(node, onFocus)` and
 * `markOf(edge)`, "" or "back", say how nodes and edges look; `children` lie over the edges. `tallest` is in pixels.
 */
export function Canvas({ drawn, centre, label, nodeOf, markOf = () => "", tallest = TALLEST, children }) {
  const box = useRef(null);
  const [width, setWidth] = useState(0);
  const [view, setView] = useState(null);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(entry.contentRect.width));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  const whole = Math.min(1, width / drawn.width, tallest / drawn.height);
  const start = Math.max(whole, READABLE);
  const paper = printing.value && { scale: Math.min(1, PAPER / drawn.width), x: 0, y: 0 }; // shows the whole graph
  const height = paper ? drawn.height * paper.scale : Math.max(90, Math.min(tallest, drawn.height * start));
  const fits = (scale) => drawn.width * scale <= width + 1 && drawn.height * scale <= height + 1;
  const centred = (scale) => {
    const node = drawn.nodes.find(({ key }) => key === centre);
    const along = (size, space, middle) => (size * scale <= space ? (space - size * scale) / 2 : clamp(space / 2 - middle * scale, space - size * scale, 0));
    return { scale, x: along(drawn.width, width, node?.x ?? 0), y: along(drawn.height, height, node?.y ?? 0) };
  };
  const { scale, x, y } = paper || (view ?? centred(start));
  useEffect(() => setView(null), [drawn, width]);

  const zoom = (by, atX = width / 2, atY = height / 2) => {
    const next = clamp(scale * by, MIN_SCALE, MAX_SCALE);
    setView({ scale: next, x: atX - ((atX - x) / scale) * next, y: atY - ((atY - y) / scale) * next });
  };
  const all = () => setView(centred(whole));
  const dragged = useRef(null);
  const onPointerDown = (event) => {
    if (event.button !== 0 || event.target.closest("a")) return;
    box.current.setPointerCapture(event.pointerId);
    dragged.current = { fromX: event.clientX - x, fromY: event.clientY - y };
  };
  const onPointerMove = (event) => dragged.current && setView({ scale, x: event.clientX - dragged.current.fromX, y: event.clientY - dragged.current.fromY });
  const onWheel = useRef(null);
  onWheel.current = (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const { left, top } = box.current.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY / 300), event.clientX - left, event.clientY - top);
  };
  useEffect(() => {
    const listener = (event) => onWheel.current(event);
    box.current.addEventListener("wheel", listener, { passive: false });
    return () => box.current?.removeEventListener("wheel", listener);
  }, []);
  const reveal = (node) => {
    box.current.scrollTo(0, 0); // the browser's own way to show what has the focus
    const toX = clamp(x, 8 - (node.x - node.width / 2) * scale, width - 8 - (node.x + node.width / 2) * scale);
    const toY = clamp(y, 8 - (node.y - node.height / 2) * scale, height - 8 - (node.y + node.height / 2) * scale);
    if (toX !== x || toY !== y) setView({ scale, x: toX, y: toY });
  };
  useKeys([
    { keys: "+ =", group: "This view", label: "Enlarge the graph", run: () => zoom(1.2) },
    { keys: "-", group: "This view", label: "Shrink the graph", run: () => zoom(1 / 1.2) },
    { keys: "0", group: "This view", label: "Show the whole graph", run: all },
  ], [scale, x, y, width, drawn]);

  const place = { transform: `translate(${x}px, ${y}px) scale(${scale})`, width: `${drawn.width}px`, height: `${drawn.height}px` };
  return html`<div ref=${box} class="graph-box ${fits(scale) ? "" : "pannable"}" style=${{ height: `${height}px` }} role="group" aria-label=${label}
      onPointerDown=${onPointerDown} onPointerMove=${onPointerMove} onPointerUp=${() => (dragged.current = null)} onPointerCancel=${() => (dragged.current = null)}>
      ${width > 0 && html`<div class="graph-drawing" style=${place}>
        <${Edges} drawn=${drawn} markOf=${markOf} />
        ${children}
        ${drawn.nodes.map((node) => nodeOf(node, () => reveal(node)))}
      </div>`}
    </div>
    ${(whole < READABLE || view) && html`<div class="graph-tools" role="group" aria-label="Graph">
      <button type="button" class="small" title="Shrink (-)" aria-label="Shrink the graph" onClick=${() => zoom(1 / 1.2)}>−</button>
      <button type="button" class="small" title="Enlarge (+)" aria-label="Enlarge the graph" onClick=${() => zoom(1.2)}>+</button>
      <button type="button" class="small" title="Show all (0)" onClick=${all}>All</button></div>`}`;
}

const clamp = (value, least, most) => Math.max(Math.min(least, most), Math.min(Math.max(least, most), value));

/** Edges as curves with an arrow at their end. */
function Edges({ drawn, markOf }) {
  return html`<svg class="graph-edges" width=${drawn.width} height=${drawn.height} aria-hidden="true">
    <defs>${["", "-back"].map((name) => html`<marker key=${name} id="arrow${name}" class="arrow${name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" /></marker>`)}</defs>
    ${drawn.edges.map(({ from, to, points }) => {
      const mark = markOf({ from, to });
      return html`<path key=${`${from} ${to}`} class=${mark ? "pulled-back" : ""} d=${curve(points)} marker-end="url(#arrow${mark && `-${mark}`})" />`;
    })}</svg>`;
}

function curve(points) {
  const [first, ...rest] = points.map(({ x, y }) => [x.toFixed(1), y.toFixed(1)]);
  const middles = rest.slice(0, -1).map((point, index) => `Q${point} ${[0, 1].map((axis) => ((Number(point[axis]) + Number(rest[index + 1][axis])) / 2).toFixed(1))}`);
  return `M${first}${middles.join("")}L${rest.at(-1)}`;
}
