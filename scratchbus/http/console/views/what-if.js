// What if: the real page beside the page as it would be if some sources had been silent.
import { html, useMemo, useState } from "../lib/base.js";
import { without } from "../lib/api.js";
import { useKeys } from "../lib/keys.js";
import { useLoad } from "../lib/load.js";
import { go, link, param } from "../lib/route.js";
import { page } from "../lib/state.js";
import { count, countShown, Text, visible } from "../lib/text.js";
import { isPast } from "../lib/time.js";
import { FieldDiff } from "../ui/diff.js";
import { ObservationBadge, Status } from "../ui/observation.js";
import { Empty, Loading, ProblemNote } from "../ui/problem.js";
import { compare } from "./what-if/compare.js";
import { Why } from "./what-if/why.js";

const all = param("all"); // also what does not differ; "" is the default: all while nothing is off, else only what differs
const closed = param("closed");
const STEP = 200; // rows shown at first, and with each "Show more"
const HIDDEN = ["version", "updated_at", "position", "reason", "reason_code", "status_class", "chain", "attempts", "fence", "not_before", "archive_at", "due_at", "seen_by", "followed"];
const SIGNS = { same: ["=", "the same"], gone: ["−", "gone"], changed: ["≠", "another"], added: ["+", "only without"] };

export default function WhatIf() {
  const silent = useMemo(() => (without.value ? without.value.split(",") : []), [without.value]);
  const [progress, setProgress] = useState("");
  const { data, error, loading, reload } = useLoad((signal) => compare(page.value, without.value, closed.value !== "", signal, (text) => !signal.aborted && setProgress(text)), [page.value, closed.value], { on: (event) => event.page === page.peek() });
  const toggle = (name) => go({ without: (silent.includes(name) ? silent.filter((each) => each !== name) : [...silent, name]).join() });
  const clear = () => go({ without: null });
  useKeys([
    { keys: "n", group: "This view", label: "Switch all sources on", when: () => without.peek() !== "", run: clear },
    { keys: "v", group: "This view", label: "All rows, or only differences", run: () => go({ all: all.peek() ? null : "yes" }, { replace: true }) },
  ]);
  if (error && !data) return html`<${ProblemNote} error=${error} retry=${reload} />`;
  if (!data) return html`<${Loading} progress=${progress} />`;
  const differing = data.rows.filter(({ kind }) => kind !== "same");
  const rows = data.silent.length && !all.value ? differing : data.rows;
  return html`<div class="what-if" tabindex="0" role="region" aria-label="What if">
    <${Sources} sources=${data.sources} counted=${data.counted} silent=${silent} toggle=${toggle} clear=${clear} />
    ${error && html`<${ProblemNote} error=${error} retry=${reload} />`}
    <div class="what-if-options">
      <p role="status" class="what-if-sum">${data.silent.length ? html`<${Sum} rows=${data.rows} differing=${differing} areOlder=${data.more} />` : countShown(data.rows.length, data.rows.length, "observation", data.more)}${loading ? html`<span aria-hidden="true"> …${data.more ? ` ${progress}` : ""}</span>` : ""}</p>
      ${silent.length > 0 && html`<label class="check"><input type="checkbox" checked=${all.value !== ""} onChange=${(event) => go({ all: event.target.checked ? "yes" : null }, { replace: true })} /> Also what is the same</label>`}
      <label class="check"><input type="checkbox" checked=${closed.value !== ""} onChange=${(event) => go({ closed: event.target.checked ? "yes" : null }, { replace: true })} /> Also closed ones</label>
    </div>
    ${rows.length > 0 ? html`<${Sides} rows=${rows} all=${data.rows} silent=${data.silent} at=${data.at} />` : html`<${Nothing} silent=${data.silent} total=${data.rows.length} isNew=${!data.sources.length && !isPast.value} />`}
  </div>`;
}

/** The sources as switches. */
function Sources({ sources, counted, silent, toggle, clear }) {
  const known = new Set(sources.map(({ name }) => name));
  const shown = [...sources, ...silent.filter((name) => !known.has(name)).map((name) => ({ name, count: 0 }))];
  if (!shown.length) return null;
  return html`<div class="sources"><h2 id="sources">Sources</h2>
    <div class="source-list" role="group" aria-labelledby="sources">${shown.map(({ name, count: said }) => html`
      <button key=${name} type="button" role="switch" class="source" aria-checked=${!silent.includes(name)} onClick=${() => toggle(name)} title=${`${said ? `${count(said, "observation")} of it here` : "It changed others' observations here"}. Click to switch it ${silent.includes(name) ? "on" : "off"}`}>
        <span class="switch" aria-hidden="true"></span><${Text} value=${name} /> <small>${said ? said.toLocaleString("en") : ""}</small></button>`)}
      ${silent.length > 0 && html`<button type="button" class="source-clear" title="Switch all sources on (n)" onClick=${clear}>All on</button>`}
      ${counted > 0 && html`<span class="source-counted">Counted in the newest ${counted.toLocaleString("en")} observations of the page</span>`}</div></div>`;
}

function Sum({ rows, differing, areOlder }) {
  const of = (kind) => differing.filter((each) => each.kind === kind).length;
  const parts = [[of("gone"), "gone"], [of("changed"), "another"], [of("added"), "only without"]].filter(([number]) => number);
  return parts.length ? html`<strong>${parts.map(([number, word]) => count(number, word, word)).join(", ")}</strong> of ${areOlder ? "the newest " : ""}${rows.length.toLocaleString("en")}` : `Nothing differs; ${countShown(rows.length, rows.length, "observation", areOlder)}`;
}

function Sides({ rows, all: every, silent, at }) {
  const byId = useMemo(() => new Map(every.map((row) => [row.id, row])), [every]);
  const [most, setMost] = useState(STEP);
  return html`<div class="sides" role="table" aria-label="The page, and the page without the sources">
    <div role="row" class="sides-row sides-head"><span role="columnheader">${isPast.value ? "As it was" : "As it is"}</span><span role="columnheader"><span class="visually-hidden">Difference</span></span>
      <span role="columnheader">${silent.length ? html`Without <${Text} value=${silent.join(", ")} />` : "Without: switch a source off"}</span></div>
    ${rows.slice(0, most).map((row) => html`<div key=${row.id} role="row" class="sides-row is-${row.kind}">
      <div role="cell" class="side">${row.actual ? html`<${One} observation=${row.actual} />` : html`<span class="quiet absent">not there</span>`}</div>
      <div role="cell" class="side-sign" title=${SIGNS[row.kind][1]}><span aria-hidden="true">${SIGNS[row.kind][0]}</span><span class="visually-hidden">${SIGNS[row.kind][1]}</span></div>
      <div role="cell" class="side">
        ${row.kind === "gone" ? html`<span class="absent"><strong class="gone-word">gone</strong> <${Why} row=${row} rows=${byId} silent=${silent} at=${at} /></span>` : row.without && html`<${One} observation=${row.without} />`}
        ${row.kind === "changed" && html`<${Changed} fields=${row.fields} />`}
        ${(row.kind === "changed" || row.kind === "added") && html`<${Why} row=${row} rows=${byId} silent=${silent} at=${at} />`}
      </div></div>`)}
  </div>
  ${rows.length > most && html`<p class="sides-more"><button type="button" onClick=${() => setMost(most + STEP)}>Show more</button> <span class="quiet">${most.toLocaleString("en")} of ${count(rows.length, "row")}</span></p>`}`;
}

const One = ({ observation }) => html`<span class="one"><span class="number one-priority">${observation.priority}</span><${ObservationBadge} observation=${observation} view="story" />${observation.status !== "active" && html`<${Status} observation=${observation} />`}</span>`;

function Changed({ fields }) {
  const shown = Object.entries(fields).filter(([name]) => !HIDDEN.includes(name));
  return shown.length > 0 && html`<dl class="field-diffs">${shown.map(([name, change]) => html`<${FieldDiff} key=${name} name=${name} before=${change.before} after=${change.after} />`)}</dl>`;
}

function Nothing({ silent, total, isNew }) {
  if (silent.length && total) return html`<${Empty} title="Nothing differs"><p>The page would have been the same without <${Text} value=${silent.join(" and ")} />.</p>
    <p><button type="button" onClick=${() => go({ all: "yes" }, { replace: true })}>Show the whole page</button></p><//>`;
  if (isNew) return html`<${Empty} title="Nothing is on ${visible(page.value)} yet"><p>Here you see what the page would be if some sources had said nothing.</p>
    <p><a href=${link({}, "now")}>Add an observation</a>, or choose another page with <kbd>p</kbd>.</p><//>`;
  return html`<${Empty} title="Nothing is open on ${visible(page.value)}${isPast.value ? " then" : ""}"><p>Choose another page with <kbd>p</kbd>, or another moment below.</p>
    <p><button type="button" onClick=${() => go({ closed: "yes" }, { replace: true })}>Show closed ones</button></p><//>`;
}
