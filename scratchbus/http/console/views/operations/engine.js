// The engine, the logs and their projection, and the archive.
import { html } from "../../lib/base.js";
import { get } from "../../lib/api.js";
import { useLoad } from "../../lib/load.js";
import { size, Text } from "../../lib/text.js";
import { duration, millisOf } from "../../lib/time.js";
import { ProblemNote } from "../../ui/problem.js";
import { Moment } from "../../ui/times.js";
import { Facts, Grid, number, Panel } from "./parts.js";

export function Engine({ status: it }) {
  return html`<${Panel} id="engine" title="Engine" sign=${it.risks.length ? "warn" : "good"}>
    <${Facts} facts=${[
      ["engine", `${it.engine} ${it.version}`], ["url", it.url], ["directory", it.directory],
      ["memory", it.memory_bytes === null ? null : `${size(it.memory_bytes)}${it.memory_limit_bytes ? ` of ${size(it.memory_limit_bytes)}` : ""}`],
      ["persistence", it.persistence], ["bus", it.bus], ["pages", `${number(it.page_count)}, ${number(it.open)} open observations`]]} />
    ${it.risks.length > 0 && html`<ul class="risks" aria-label="Risks">${it.risks.map((risk) => html`<li key=${risk}><${Text} value=${risk} /></li>`)}</ul>`}<//>`;
}

export function Shards({ shards }) {
  const lag = shards.reduce((sum, each) => sum + each.lag, 0);
  const wrong = shards.some(({ rejected, missing, foreign }) => rejected || missing || foreign);
  const columns = [
    { title: "Shard", names: true, number: true, cell: (it) => it.shard },
    { title: "Events", number: true, cell: (it) => number(it.events) },
    { title: "End", cell: (it) => html`<code title=${it.end}>${it.end}</code>` },
    { title: "Projector behind", number: true, cell: (it) => (it.lag ? html`<span class="behind">${number(it.lag)}</span> <small>${duration(it.lag_seconds * 1000)}</small>` : "0") },
    { title: "Rejected", number: true, cell: (it) => marked(it.rejected) },
    { title: "Missing", number: true, cell: (it) => marked(it.missing) },
    { title: "Foreign", number: true, cell: (it) => marked(it.foreign) },
    { title: "In the log since", cell: (it) => (it.floor ? html`<${Moment} at=${millisOf(it.floor)} />` : "the beginning") },
  ];
  return html`<${Panel} id="shards" title="Logs and projector" wide note=${`${number(shards.reduce((sum, each) => sum + each.events, 0))} events${lag ? `, ${number(lag)} not folded yet` : ", all folded"}`} sign=${wrong ? "bad" : "good"}>
    <${Grid} label="Logs" columns=${columns} rows=${shards} keyOf=${({ shard }) => shard} />
    ${wrong && html`<p class="hint">Rejected events could not be read, missing ones left a gap, foreign entries block all writes: <code>scratchbus verify</code> says more, <code>scratchbus repair</code> sets foreign ones aside.</p>`}<//>`;
}

const marked = (value) => (value ? html`<strong class="wrong">${number(value)}</strong>` : "0");

export function Archive() {
  const { data, error, reload } = useLoad((signal) => get("/archive", {}, { signal }), [], { isTimeless: true });
  if (error && !data) return html`<${Panel} id="archive" title="Archive"><${ProblemNote} error=${error} retry=${reload} /><//>`;
  if (!data) return null;
  if (!data.where) return html`<${Panel} id="archive" title="Archive" wide><p class="hint">None. With <code>SCRATCHBUS_ARCHIVE_URL=file:///…</code>, <code>scratchbus log-archive run</code> moves old events into segments that vouch for each other.</p><//>`;
  return html`<${Panel} id="archive" title="Archive" wide note=${data.is_sound ? "the chain is whole" : "the chain is broken"} sign=${data.is_sound ? "good" : "bad"}>
    ${error && html`<${ProblemNote} error=${error} retry=${reload} />`}
    <${Facts} facts=${[["where", data.where]]} />
    ${data.logs.length > 0 && html`<${Grid} label="Archived logs" keyOf=${({ shard }) => shard} rows=${data.logs} columns=${[
      { title: "Shard", names: true, number: true, cell: (it) => it.shard }, { title: "Segments", number: true, cell: (it) => number(it.segments) }, { title: "Events", number: true, cell: (it) => number(it.events) },
      { title: "Erased", number: true, cell: (it) => number(it.erased) }, { title: "Size", number: true, cell: (it) => size(it.bytes) },
      { title: "From", cell: (it) => (it.first ? html`<code>${it.first}</code>` : "") }, { title: "To", cell: (it) => (it.last ? html`<code>${it.last}</code>` : "") }]} />`}
    ${data.logs.flatMap(({ problems }) => problems).map(({ file, problem }) => html`<p key=${file + problem} class="wrong"><code>${file}</code>: <${Text} value=${problem} /></p>`)}<//>`;
}
