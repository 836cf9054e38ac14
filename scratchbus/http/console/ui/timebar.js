// The time bar below every view: a histogram of events with a slider, steps, playback, and the way back to live.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../lib/base.js";
import { get, pagePath, read } from "../lib/api.js";
import { KIND_GROUPS, groupOf } from "../lib/kinds.js";
import { useKeys } from "../lib/keys.js";
import { useLoad } from "../lib/load.js";
import { received } from "../lib/live.js";
import { go, param } from "../lib/route.js";
import { isDark, page, selected } from "../lib/state.js";
import { clock, day, isPast, millisOf, moment, now, serverNow, stamp } from "../lib/time.js";
import { isInBanner, messageOf } from "./problem.js";
import { Menu } from "./menu.js";
import { TimeField } from "./times.js";
import { toast } from "./toast.js";
import { back, goTo, moving, player, SPEEDS, startPlaying, step, stopPlaying } from "./timetravel.js";
import uPlot from "../vendor/uplot.js";

const SPANS = [["", "All time"], ["7d", "7 days"], ["1d", "1 day"], ["6h", "6 hours"], ["1h", "1 hour"], ["15m", "15 minutes"]];
const SPAN_MS = { "7d": 6048e5, "1d": 864e5, "6h": 216e5, "1h": 36e5, "15m": 9e5 };
const span = param("span");
const STALE = 2000; // milliseconds between histograms while events come

/** `scope` is "page" or "bus": whose events are shown and stepped through. */
export function TimeBar({ scope }) {
  const box = useRef(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  const pages = scope === "page" ? page.value : null;
  const buckets = Math.max(20, Math.min(400, Math.floor(width / 5)));
  const { data, error, reload } = useLoad((signal) => histogram(pages, buckets, signal), [pages, span.value, buckets]);
  useRefresh(reload);
  useEffect(() => stopPlaying, [page.value]);
  const since = data && Date.parse(data.since);
  const bounds = data && { since, until: Math.max(Date.parse(data.until), since + 1) };
  const { playing, speed } = player.value;

  const jump = async (ms) => {
    try {
      await goTo(ms, pages);
    } catch (problem) {
      toast(messageOf(problem), { kind: "error" });
    }
  };
  const toChange = () => lastChange().catch((problem) => toast(messageOf(problem), { kind: "error" }));
  const stepBy = (by) => (stopPlaying(), step(by, pages).catch((problem) => toast(messageOf(problem), { kind: "error" })));
  const play = () => (playing ? stopPlaying() : startPlaying(pages, bounds?.since));

  useKeys([
    { keys: "ArrowLeft", group: "Time", label: "One event back", run: () => stepBy(-1) },
    { keys: "ArrowRight", group: "Time", label: "One event on", run: () => stepBy(1) },
    { keys: "Space", group: "Time", label: "Play, or stop", repeat: false, run: play },
    { keys: "l", group: "Time", label: "Back to live", run: back },
    { keys: "g", group: "Time", label: "Type a time", run: () => box.current.closest("footer").querySelector(".time-field input").focus() },
    { keys: "c", group: "Time", label: "To the last change of the selected observation", when: () => selected.peek() !== "", run: toChange },
  ], [pages, playing, bounds?.since]);

  return html`<div class="timebar ${isPast.value ? "past" : ""}">
    <div class="time-controls">
      <div class="time-steps">
        <button type="button" class="icon" aria-label="One event back" title="One event back (←)" onClick=${() => stepBy(-1)}><${Icon} path="M13 3 5 10l8 7z" /></button>
        <button type="button" class="icon" aria-label=${playing ? "Stop" : "Play"} title="${playing ? "Stop" : "Play"} (Space)" onClick=${play}>
          <${Icon} path=${playing ? "M5 3h4v14H5zM11 3h4v14h-4z" : "M5 3l12 7-12 7z"} /></button>
        <button type="button" class="icon" aria-label="One event on" title="One event on (→)" disabled=${!isPast.value} onClick=${() => stepBy(1)}><${Icon} path="M7 3l8 7-8 7z" /></button>
        <${Menu} label="Speed: ${speed}×" className="small" items=${SPEEDS.map((each) => ({ label: `${each}×`, checked: each === speed, run: () => (player.value = { ...player.peek(), speed: each }) }))}>${speed}×<//>
      </div>
      <${TimeField} label="Moment" value=${momentText()} onTime=${jump} />
      ${selected.value && html`<button type="button" class="small last-change" title="To the last change of the selected observation (c)" onClick=${toChange}>Last change</button>`}
      <span class="time-note quiet">${player.value.note}</span>
      <${Menu} label="Span: ${spanName()}" className="small" align="right" items=${SPANS.map(([name, label]) => ({ label, checked: name === span.value, run: () => go({ span: name }, { replace: true }) }))}>${spanName()}<//>
      <button type="button" class="small live-button" aria-pressed=${!isPast.value} title="Back to live (l)" onClick=${back}>Live</button>
    </div>
    <div class="time-plot" ref=${box}>
      ${width > 0 && data && html`<${Histogram} data=${data} width=${width} bounds=${bounds} />`}
      ${error && !data && !isInBanner(error) && html`<p class="quiet time-missing">The histogram could not be loaded: ${messageOf(error)}</p>`}
      ${bounds && html`<${Slider} bounds=${bounds} isEmpty=${data.first === null} jump=${jump} stepBy=${stepBy} />`}
    </div>
  </div>`;
}

/** Return the moment shown as a text; one in the address that is no time stays as it is. */
const momentText = (live = "now") => (!isPast.value ? live : Number.isNaN(now.value) ? moment.value : stamp(now.value, true));

const spanName = () => SPANS.find(([name]) => name === span.value)?.[1] ?? "All time";
const Icon = ({ path }) => html`<svg viewBox="0 0 20 20" width="16" height="16" aria-hidden="true"><path d=${path} /></svg>`;

async function histogram(pages, buckets, signal) {
  const ask = (range) => get("/events/histogram", { ...range, buckets, page: pages }, { signal });
  const length = SPAN_MS[span.peek()];
  if (length) {
    const until = Math.min(serverNow(), (now.peek() || Infinity) + length / 4);
    return ask({ since: new Date(until - length).toISOString(), until: new Date(until).toISOString() });
  }
  const all = await ask({});
  const first = all.buckets.findIndex(({ count }) => count > 0);
  if (first < all.buckets.length / 10) return all;
  return ask({ since: new Date(millisOf(all.buckets[first].position)).toISOString() }); // the page is younger than the bus
}

/** Load the histogram again while events come, and as live time goes on. */
function useRefresh(reload) {
  useEffect(() => {
    let seen = received.peek();
    let passes = 0;
    const timer = setInterval(() => {
      passes++;
      const came = received.peek() !== seen;
      if (document.hidden || isPast.peek() || (!came && passes % 5)) return;
      seen = received.peek();
      reload();
    }, STALE);
    return () => clearInterval(timer);
  }, []);
}

/** The stacked bars; they say with shapes what the slider's text says in words. */
function Histogram({ data, width, bounds }) {
  const box = useRef(null);
  const height = 46;
  useEffect(() => {
    const style = getComputedStyle(document.documentElement);
    const stacks = stacked(data.buckets);
    const series = KIND_GROUPS.map(([name]) => ({ fill: style.getPropertyValue(`--kind-${name}`), width: 0, points: { show: false }, paths: uPlot.paths.bars({ size: [0.8, 40], align: 1 }) }));
    const plot = new uPlot({
      width, height, padding: [2, 0, 0, 0], legend: { show: false }, cursor: { show: false }, select: { show: false },
      scales: { x: { time: true, range: () => [bounds.since / 1000, bounds.until / 1000] }, y: { range: (_, __, most) => [0, Math.max(1, most ?? 1) * 1.05] } },
      axes: [{ show: false }, { show: false }],
      series: [{}, ...series.reverse()],
    }, [data.buckets.map(({ at }) => Date.parse(at) / 1000), ...stacks.reverse()], box.current);
    return () => plot.destroy();
  }, [data, width, isDark.value]);
  return html`<div ref=${box} class="time-bars" aria-hidden="true"></div>`;
}

/** Return one array a group, each on top of those before it. Square roots, so that single events stay visible. */
function stacked(buckets) {
  const sums = buckets.map(() => 0);
  return KIND_GROUPS.map(([group]) => buckets.map(({ kinds, count: all }, index) => {
    for (const [kind, number] of Object.entries(kinds)) if (groupOf(kind) === group) sums[index] += number;
    return all ? (sums[index] / all) * Math.sqrt(all) : 0;
  }));
}

function Slider({ bounds, isEmpty, jump, stepBy }) {
  const track = useRef(null);
  const [dragged, setDragged] = useState(null);
  const [hover, setHover] = useState(null);
  const isTime = isPast.value && !Number.isNaN(now.value); // a link may have something else as its moment
  const at = dragged ?? (isTime ? now.value : bounds.until);
  const part = Math.max(0, Math.min(1, (at - bounds.since) / (bounds.until - bounds.since)));
  const timeAt = (event) => {
    const box = track.current.getBoundingClientRect();
    return bounds.since + Math.max(0, Math.min(1, (event.clientX - box.left) / box.width)) * (bounds.until - bounds.since);
  };
  const wantedAt = (event) => (timeAt(event) >= bounds.until ? Infinity : timeAt(event)); // the end is live
  const follow = useLatest(jump);
  const onDown = (event) => {
    if (event.button !== 0) return;
    stopPlaying();
    track.current.setPointerCapture(event.pointerId);
    setDragged(timeAt(event));
    follow(wantedAt(event));
  };
  const onMove = (event) => {
    setHover(timeAt(event));
    if (dragged === null) return;
    setDragged(timeAt(event));
    follow(wantedAt(event));
  };
  const onKeyDown = (event) => {
    const many = { PageUp: -20, PageDown: 20 }[event.key];
    if (many) stepBy(many);
    else if (event.key === "Home") jump(bounds.since);
    else if (event.key === "End") back();
    else return;
    event.preventDefault();
  };
  const shownAt = hover ?? dragged;
  return html`<div class="slider" ref=${track} role="slider" tabindex="0" aria-label="Moment" aria-orientation="horizontal"
    aria-valuemin=${Math.round(bounds.since)} aria-valuemax=${Math.round(bounds.until)} aria-valuenow=${Math.round(at)}
    aria-valuetext=${isTime ? stamp(at) : momentText("live")} aria-busy=${moving.value > 0}
    onPointerDown=${onDown} onPointerMove=${onMove} onPointerUp=${() => setDragged(null)} onPointerCancel=${() => setDragged(null)}
    onPointerLeave=${() => setHover(null)} onKeyDown=${onKeyDown}>
    <span class="slider-after" style=${{ left: `${part * 100}%` }}></span>
    <span class="slider-thumb" style=${{ left: `${part * 100}%` }}></span>
    ${shownAt !== null && html`<span class="slider-hint number" style=${{ left: `${Math.max(6, Math.min(94, ((shownAt - bounds.since) / (bounds.until - bounds.since)) * 100))}%` }}>
      ${bounds.until - bounds.since > 864e5 ? stamp(shownAt) : clock(shownAt, isShort(bounds))}</span>`}
    ${isEmpty ? html`<span class="slider-end">No events yet</span>`
      : html`<span class="slider-end start number">${stampShort(bounds.since, bounds)}</span><span class="slider-end end number">${stampShort(bounds.until, bounds)}</span>`}
  </div>`;
}

/** Whether both ends of the bar may be the same to the second. */
const isShort = ({ since, until }) => until - since < 2000;

/** Return a time at an end of the bar: without the day if that is today, and as exact as the length of the bar asks for. */
function stampShort(ms, bounds) {
  if (bounds.until - bounds.since > 432e5) return stamp(ms).slice(5, 16);
  const time = clock(ms, isShort(bounds));
  return day(ms) === day(serverNow()) ? time : `${day(ms).slice(5)} ${time}`;
}

/** Call `run` with the newest value, one call at a time. */
function useLatest(run) {
  const state = useRef({ busy: false, next: null, run });
  state.current.run = run;
  return async (value) => {
    const it = state.current;
    it.next = { value };
    if (it.busy) return;
    it.busy = true;
    while (it.next) {
      const { value: wanted } = it.next;
      it.next = null;
      await it.run(wanted);
    }
    it.busy = false;
  };
}

/** Go to the last change of the selected observation; from there, to the one before it. */
async function lastChange() {
  const { position } = await read(pagePath(page.peek(), "observations", selected.peek()));
  if (position !== moment.peek()) return go({ at: position });
  const { items } = await read(pagePath(page.peek(), "observations", selected.peek(), "history"));
  const before = items.map((each) => each.position).filter((each) => millisOf(each) <= millisOf(position) && each !== position).at(-1);
  if (before) go({ at: before }, { replace: true });
  else toast("It began here");
  return undefined;
}
