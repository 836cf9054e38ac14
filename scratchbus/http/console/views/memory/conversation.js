// The conversation of a session as its agent sees it; a summary expands to the turns that it replaces.
import { html, useEffect, useState } from "../../lib/base.js";
import { get } from "../../lib/api.js";
import { useLoad } from "../../lib/load.js";
import { count, Text, visible } from "../../lib/text.js";
import { isPast } from "../../lib/time.js";
import { Empty, Loading, ProblemNote } from "../../ui/problem.js";
import { Moment } from "../../ui/times.js";
import { eventsOf, isAbout, pageOf, recall, sessionPath } from "./recall.js";

const STEP = 100; // turns that are shown at once, the last ones first
const LONG = 1200; // characters; of a longer turn, the beginning is shown

export function Conversation({ session }) {
  const { data, error, reload } = useLoad((signal) => recall(session, ["turns", "shown"], {}, { signal }), [session], { on: (event) => ["turn_*", "task_*"].some((subject) => isAbout(session, subject)(event)) });
  const [most, setMost] = useState(STEP);
  if (error && !data) return html`<${ProblemNote} error=${error} retry=${reload} />`;
  if (!data) return html`<${Loading} />`;
  const turns = data.items;
  if (!turns.length) {
    return html`<${Empty} title=${isPast.value ? "Nothing had been said then" : "Nothing is kept of the conversation"}><p>A session keeps what its host appends, such as the program that runs the agent:</p>
      <pre>bus.turns("${visible(session)}").append("user", "Why does the payment fail?")</pre>${!isPast.value && html`<p class="hint">A session that has ended shows its turns in the past: step back with <kbd>←</kbd>.</p>`}<//>`;
  }
  const tokens = turns.reduce((sum, turn) => sum + (turn.tokens ?? 0), 0);
  return html`<div class="memory-part conversation">
    <div class="memory-bar"><h3>What an agent is shown <small>${count(turns.length, "turn")}${tokens ? `, ${count(tokens, "token")} as far as they were given` : ""}</small></h3></div>
    ${turns.length > most && html`<p class="turns-more"><button type="button" onClick=${() => setMost(most + STEP)}>Show ${Math.min(STEP, turns.length - most)} earlier</button></p>`}
    <ol class="turns">${turns.slice(-most).map((turn) => html`<${Turn} key=${turn.id} turn=${turn} session=${session} />`)}</ol></div>`;
}

/** A turn, or a summary with what it stands for; `said` has that once it was loaded. */
function Turn({ turn, session, said: known }) {
  const [open, setOpen] = useState(false);
  const [isWhole, setWhole] = useState(false);
  const isSummary = turn.role === "summary";
  const text = isWhole || turn.content.length <= LONG * 1.2 ? turn.content : `${turn.content.slice(0, LONG)} …`;
  return html`<li class="turn ${isSummary ? "is-summary" : ""}">
    <div class="turn-head"><strong>${isSummary ? (turn.task ? "summary of a task" : "summary") : visible(turn.role)}</strong>
      <span class="quiet">${turn.source && html`<${Text} value=${turn.source} />, `}<${Moment} at=${turn.created_at} />${turn.tokens ? `, ${count(turn.tokens, "token")}` : ""}</span>
      ${isSummary && turn.replaces.length > 0 && html`<button type="button" class="small" aria-expanded=${open} onClick=${() => setOpen(!open)}>${open ? "Hide" : "Show"} the ${turn.replaces.length === 1 ? "turn" : `${turn.replaces.length} turns`} it replaced</button>`}</div>
    <div class="turn-content" dir="auto"><${Text} value=${text} lines /></div>
    ${text !== turn.content && html`<button type="button" class="small" onClick=${() => setWhole(true)}>Show all ${count(turn.content.length, "character")}</button>`}
    ${open && html`<${Replaced} turn=${turn} session=${session} said=${known} />`}</li>`;
}

/** What a summary stands for: turns, and other summaries. */
function Replaced({ turn, session, said: known }) {
  const [{ said, error }, setLoaded] = useState({ said: known ?? null, error: null });
  const load = () => loadSaid(session).then((found) => setLoaded({ said: found, error: null }), (problem) => setLoaded({ said: null, error: problem }));
  useEffect(() => {
    if (!said) load();
  }, []);
  if (error) return html`<${ProblemNote} error=${error} retry=${load} />`;
  if (!said) return html`<p class="hint" role="status">Loading …</p>`;
  return html`<ol class="turns">${turn.replaces.map((id) => said.has(id) ? html`<${Turn} key=${id} turn=${said.get(id)} session=${session} said=${said} />` : html`<li key=${id} class="turn hint">${id} was erased, or has left the log.</li>`)}</ol>`;
}

/** Return all that was ever said or summed up in a session, by its id. */
async function loadSaid(session) {
  const [{ items: turns }, events] = await Promise.all([get(sessionPath(session, "turns")), eventsOf(pageOf(session), ["turns_compacted", "task_ended"], undefined, 1000)]);
  const summaries = events.map((event) => [event.subject, { id: event.subject, role: "summary", content: event.content ?? event.summary, tokens: event.tokens, task: event.kind === "task_ended" ? event.subject : null, replaces: event.turns ?? [], source: event.by, created_at: event.at }]);
  return new Map([...turns.map((turn) => [turn.id, turn]), ...summaries]);
}
