// A virtual table: only visible rows are in the document, so 100,000 rows scroll as smoothly as a hundred.
import { Fragment, html, useLayoutEffect, useMemo, useRef, useState } from "../lib/base.js";
import { printing } from "../lib/screen.js";
import { count } from "../lib/text.js";

const SPARE = 6; // rows beyond the visible ones, above and below
const MAX_PRINTED = 1000;

/**
 * Props: `label`; `rows`, `keyOf(row)`; `columns`, [{name, title, cell(row), label?}]; `rowHeight` in pixels;
 * `selected`, a key; `onSelect(row)` for click and Enter; `rowClass(row)`; `expanded`, a Set of keys, with `detail(row)`
 * for what is below those rows; `onEnd()` when the last rows come near; `control`, a ref that gets {move, focus};
 * `className`, whose CSS sets --columns, the grid template. The first visible row stays where it is when rows arrive.
 */
export function Table(props) {
  const { label, rows, keyOf, columns, rowHeight, selected, expanded, onEnd, control, className = "" } = props;
  const box = useRef(null);
  const [view, setView] = useState({ top: 0, height: 0 });
  const [active, setActive] = useState(null);
  const [heights] = useState(() => new Map()); // of details, by key
  const [, measured] = useState(0);
  const anchor = useRef({ key: null, index: 0, offset: 0 });

  const layout = useMemo(
    () => layOut(rows, keyOf, rowHeight, expanded, heights),
    [rows, rowHeight, expanded, [...heights.values()].join()],
  );
  const isPrinted = printing.value;
  const first = isPrinted ? 0 : Math.max(0, layout.indexAt(view.top) - SPARE);
  const end = Math.min(rows.length, isPrinted ? MAX_PRINTED : layout.indexAt(view.top + view.height) + 1 + SPARE);
  const found = useMemo(() => indexOfKey(rows, keyOf, active ?? selected, 0), [rows, active, selected]);
  const place = useRef(-1); // of the active row; when it leaves, the one that is there now is active
  const activeIndex = found < 0 && active !== null ? Math.min(place.current, rows.length - 1) : found;
  place.current = activeIndex;
  const shown = range(first, end);
  if (!isPrinted && activeIndex >= end) shown.push(activeIndex); // an element that is neither removed nor moved keeps its focus
  else if (!isPrinted && activeIndex >= 0 && activeIndex < first) shown.unshift(activeIndex);

  const look = () => box.current && setView({ top: box.current.scrollTop, height: box.current.clientHeight });
  useLayoutEffect(() => {
    look();
    const observer = new ResizeObserver(look);
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);

  useLayoutEffect(() => {
    if (!isPrinted) return undefined;
    const element = box.current;
    const { scrollTop } = element; // printed, the table is whole and does not scroll
    return () => (element.scrollTop = scrollTop);
  }, [isPrinted]);

  useLayoutEffect(() => {
    const { key, index, offset } = anchor.current;
    const element = box.current;
    if (key !== null && element.scrollTop > 0) {
      const at = indexOfKey(rows, keyOf, key, index);
      const top = at < 0 ? element.scrollTop : layout.topOf(at) + offset;
      if (Math.abs(top - element.scrollTop) >= 1) element.scrollTop = top;
    }
    look();
  }, [layout]);

  useLayoutEffect(() => {
    const index = layout.indexAt(view.top);
    const row = rows[index];
    anchor.current = { key: row === undefined ? null : keyOf(row), index, offset: view.top - layout.topOf(index) };
    if (onEnd && !isPrinted && view.height && end >= rows.length - 20) onEnd();
  }, [view.top, view.height, layout]);

  const reveal = (index) => {
    const element = box.current;
    if (!element) return; // the table is gone, since there are no rows any more
    const top = layout.topOf(index);
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + rowHeight > element.scrollTop + element.clientHeight) element.scrollTop = top + rowHeight - element.clientHeight;
    look();
  };
  const focusing = useRef(false);
  const focused = useRef(false); // whether a row has the focus, or had it when it left
  useLayoutEffect(() => {
    if (found >= 0 || activeIndex < 0) return;
    setActive(keyOf(rows[activeIndex]));
    focusing.current = focused.current && document.activeElement === document.body;
  }, [found, activeIndex]);
  const moveTo = (index) => {
    const row = rows[Math.max(0, Math.min(rows.length - 1, index))];
    if (row === undefined) return;
    focusing.current = true;
    setActive(keyOf(row));
    reveal(rows.indexOf(row));
  };
  useLayoutEffect(() => { // at once: an effect of the render before would focus the row that was active then
    if (!focusing.current) return;
    focusing.current = false;
    box.current.querySelector("[role=row][tabindex='0']")?.focus({ preventScroll: true });
  });
  if (control) {
    control.current = {
      move: (by) => moveTo(activeIndex < 0 ? 0 : activeIndex + by),
      focus: () => moveTo(Math.max(0, activeIndex)),
      scrollToStart: () => (box.current.scrollTop = 0),
      current: () => rows[activeIndex],
      hasFocus: () => box.current?.contains(document.activeElement) ?? false,
    };
  }

  const onKeyDown = (event) => {
    const page = Math.max(1, Math.floor(view.height / rowHeight) - 1);
    const to = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[event.key];
    if (event.target.getAttribute("role") !== "row" || event.altKey || event.ctrlKey || event.metaKey) return;
    if (to !== undefined) moveTo(activeIndex + to);
    else if (event.key === "Enter" || event.key === " ") props.onSelect?.(rows[activeIndex]);
    else return;
    event.preventDefault();
  };

  const measure = (key) => (element) => {
    if (!element || heights.get(key) === element.offsetHeight) return;
    heights.set(key, element.offsetHeight);
    measured((before) => before + 1);
  };

  const rowOf = (index) => {
    const row = rows[index];
    const key = keyOf(row);
    const isOpen = expanded?.has(key);
    const top = layout.topOf(index);
    return html`<${Fragment} key=${key}><${Row}
      row=${row} index=${index} top=${top} height=${rowHeight} columns=${columns} extra=${props.rowClass?.(row) ?? ""}
      selected=${key === selected} isOpen=${expanded ? Boolean(isOpen) : undefined}
      tabbable=${activeIndex < 0 ? index === first : index === activeIndex}
      onClick=${() => (setActive(key), props.onSelect?.(row))} onFocus=${() => setActive(key)} />
      ${isOpen && html`<div ref=${measure(key)} class="row-detail" role="row" aria-rowindex=${index + 2} aria-level="2"
        style=${{ transform: `translateY(${top + rowHeight}px)` }}><div role="gridcell">${props.detail(row)}</div></div>`}<//>`;
  };

  return html`<div class="table ${className}" role=${expanded ? "treegrid" : "grid"} aria-label=${label} aria-rowcount=${rows.length + 1} onKeyDown=${onKeyDown}>
    <div role="rowgroup" class="table-head"><div role="row" aria-rowindex="1" class="table-row">
      ${columns.map((column) => html`<div key=${column.name} role="columnheader" class="cell-${column.name}">${column.title}</div>`)}
    </div></div>
    <div class="table-body" role="rowgroup" ref=${box} onScroll=${look}
      onFocusIn=${() => (focused.current = true)} onFocusOut=${(event) => event.relatedTarget && (focused.current = false)}>
      <div role="presentation" class="table-space" style=${{ height: `${layout.height}px` }}>${shown.map(rowOf)}</div>
      ${isPrinted && rows.length > MAX_PRINTED && html`<p class="table-rest">Only the first ${count(MAX_PRINTED, "row")} of ${count(rows.length, "row")} are printed.</p>`}
    </div>
  </div>`;
}

function Row({ row, index, top, height, columns, extra, selected, isOpen, tabbable, onClick, onFocus }) {
  return html`<div role="row" class="table-row ${extra}" aria-rowindex=${index + 2} aria-selected=${selected} aria-expanded=${isOpen}
    aria-level=${isOpen === undefined ? undefined : 1}
    tabindex=${tabbable ? 0 : -1} onClick=${onClick} onFocus=${onFocus}
    style=${{ transform: `translateY(${top}px)`, height: `${height}px` }}>
    ${columns.map((column) => html`<div key=${column.name} role="gridcell" class="cell-${column.name}">${column.cell(row)}</div>`)}
  </div>`;
}

/** Return where each row is; only rows with a detail below them are out of step. */
function layOut(rows, keyOf, rowHeight, expanded, heights) {
  const open = [];
  if (expanded?.size) rows.forEach((row, index) => expanded.has(keyOf(row)) && open.push([index, heights.get(keyOf(row)) ?? 0]));
  const topOf = (index) => open.reduce((top, [at, height]) => (at < index ? top + height : top), index * rowHeight);
  const indexAt = (y) => {
    let index = Math.floor(y / rowHeight);
    for (const [at] of open) if (at < index) index = Math.max(at, Math.floor((y - (topOf(index) - index * rowHeight)) / rowHeight));
    return Math.max(0, Math.min(rows.length - 1, index));
  };
  return { topOf, indexAt, height: topOf(rows.length) };
}

/** Find a row by its key, nearest to where it was. */
function indexOfKey(rows, keyOf, key, near) {
  if (key === null || key === undefined || key === "") return -1;
  for (let by = 0; by < rows.length + near; by++) {
    if (near + by < rows.length && keyOf(rows[near + by]) === key) return near + by;
    if (near - by >= 0 && near - by < rows.length && keyOf(rows[near - by]) === key) return near - by;
  }
  return -1;
}

const range = (from, to) => Array.from({ length: Math.max(0, to - from) }, (_, index) => from + index);
