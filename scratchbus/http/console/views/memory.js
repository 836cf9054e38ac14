// Memory: knowledge by scope, the memories of agents by session, and the context assembled from them.
import { html, useEffect, useRef } from "../lib/base.js";
import { read } from "../lib/api.js";
import { useKeys } from "../lib/keys.js";
import { useLoad } from "../lib/load.js";
import { reveal } from "../lib/screen.js";
import { go, link, param } from "../lib/route.js";
import { caller, may, pages } from "../lib/state.js";
import { Text, visible } from "../lib/text.js";
import { isPast } from "../lib/time.js";
import { Empty, Loading, ProblemNote } from "../ui/problem.js";
import { Age } from "../ui/times.js";
import { Context } from "./memory/context.js";
import { Conversation } from "./memory/conversation.js";
import { Facts } from "./memory/facts.js";
import { Files } from "./memory/files.js";
import { openForm } from "./memory/form.js";
import { Notepad } from "./memory/notepad.js";
import { Notes } from "./memory/notes.js";
import { Preferences } from "./memory/preferences.js";
import { sessionPath } from "./memory/recall.js";
import { pageOfScope, scopesOf } from "./memory/scope.js";
import { Scratchpad } from "./memory/scratchpad.js";
import { Recall } from "./memory/search.js";
import { Tasks, Todo } from "./memory/todo.js";
import { NONE, Tree } from "./memory/tree.js";

const session = param("session");
const agent = param("agent");
const scope = param("scope");
const tab = param("tab");

const OF_SESSION = [["", "Notes", Notes], ["notepad", "Notepad", Notepad], ["todo", "Todo", Todo], ["tasks", "Tasks", Tasks], ["turns", "Conversation", Conversation],
  ["files", "Files", Files], ["context", "Context", Context], ["recall", "Recall", Recall]];
const OF_AGENT = [["", "Scratchpad", Scratchpad], ["context", "Context", Context]];
const OF_SCOPE = [["", "Facts", Facts], ["preferences", "Preferences", Preferences], ["recall", "Recall", Recall]];

export default function Memory() {
  const { data, error, reload } = useLoad((signal) => read("/sessions", {}, { signal, silent: "" }), [], { on: (event) => /^(session|agent):/.test(event.page) });
  const tabs = scope.value ? OF_SCOPE : agent.value ? OF_AGENT : OF_SESSION;
  const shown = tabs.find(([name]) => name === tab.value) ?? tabs[0];
  const scopes = scopesOf(pages.value);
  const move = (by) => {
    const at = tabs.indexOf(shown);
    go({ tab: tabs[(at + by + tabs.length) % tabs.length][0] || null }, { replace: true });
  };
  useKeys([
    { keys: "]", group: "This view", label: "Next part of the memory", run: () => move(1) },
    { keys: "[", group: "This view", label: "Part before", run: () => move(-1) },
  ], [tabs, shown]);
  if (caller.value && !may("memory")) return html`<${Empty} title="This token does not read memories"><p>It lacks the scope <code>memory</code>. Ask for a token that has it.</p><//>`;
  if (error && !data) return html`<${ProblemNote} error=${error} retry=${reload} />`;
  if (!data) return html`<${Loading} />`;
  const chosen = scope.value ? `scope ${scope.value}` : agent.value ? `agent ${agent.value}` : session.value ? `session ${session.value}` : "";
  if (!data.items.length && !data.agents.length && !scopes.length && !chosen) {
    return html`<${Empty} title=${isPast.value ? "There were no sessions then" : "No session yet"}><p>A session begins with its first note, notepad or todo list, such as by an agent over MCP:</p><pre>scratchbus mcp</pre>
      <p>or from Python:</p><pre>bus.notes("case-42").add("The bank answers on Mondays only.")</pre>
      <p>A scope begins with its first fact or preference:</p><pre>bus.facts("shop").assert_fact("shop", "uses", "Docker")</pre><//>`;
  }
  const known = scope.value || agent.value ? undefined : data.items.find((each) => each.id === session.value);
  return html`<div class="memory ${chosen ? "with-chosen" : ""}">
    <${Tree} sessions=${data.items} agents=${data.agents} scopes=${scopes} chosen=${chosen} />
    ${chosen ? html`<section class="memory-main" aria-label=${visible(chosen)}><${Head} known=${known} /><${Tabs} tabs=${tabs} shown=${shown} />
        <${Body} key=${`${chosen} ${shown[0]}`} shown=${shown} known=${known} sessions=${data.items} /></section>`
      : html`<section class="memory-main"><${Empty} title="Choose a scope, a session or an agent"><p>What is known, how people want things done, and what agents keep: as it is, or as it was.</p><//></section>`}
  </div>`;
}

/** The part that is chosen; a table scrolls by itself, all else in the panel. */
function Body({ shown: [, title, Part], known, sessions }) {
  const fills = Part === Facts;
  return html`<div class="memory-body ${fills ? "fills" : ""}" tabindex=${fills ? undefined : 0} role="tabpanel" aria-label=${title}>
    <${Part} scope=${scope.value || undefined} session=${session.value || undefined} agent=${agent.value || known?.agent || undefined} sessions=${sessions} /></div>`;
}

function Head({ known }) {
  const name = scope.value || agent.value || session.value;
  return html`<header class="memory-head"><a class="button memory-back" href=${link(NONE, "memory")}>‹ All</a>
    <h2><${Text} value=${name} /></h2>
    ${known?.ended && html`<span class="status">ended</span>`}
    <span class="quiet memory-about">${scope.value && html`scope, on the page <a href=${link({ page: pageOfScope(scope.value), selected: null }, "now")}><${Text} value=${pageOfScope(scope.value)} /></a>`}${known?.parent && html`${known.fork ? "forked" : "begun"} from <a href=${link({ session: known.parent }, "memory")}><${Text} value=${known.parent} /></a>; `}
      ${known?.updated_at && html`${known.agent ? html`<${Text} value=${known.agent} /> wrote ` : "written "}<${Age} at=${known.updated_at} /> ago`}</span>
    ${known && !known.ended && may("memory") && !isPast.value && html`<button type="button" class="small danger" onClick=${() => endSession(known)}>End …</button>`}</header>`;
}

function Tabs({ tabs, shown }) {
  const list = useRef(null);
  useEffect(() => reveal(list.current.querySelector("[aria-selected=true]"), list.current), [shown]);
  return html`<div ref=${list} class="tabs" role="tablist" aria-label="Parts" onKeyDown=${onTabKey}>${tabs.map(([name, title]) => html`<button key=${name} type="button" role="tab" class="tab"
    aria-selected=${shown[0] === name} tabindex=${shown[0] === name ? 0 : -1} onClick=${() => go({ tab: name || null }, { replace: true })}>${title}</button>`)}</div>`;
}

function onTabKey(event) {
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!by) return;
  const all = [...event.currentTarget.querySelectorAll("[role=tab]")];
  const next = all[(all.indexOf(event.target) + by + all.length) % all.length];
  event.preventDefault();
  event.stopPropagation();
  next.click();
  next.focus();
}

const endSession = (known) => openForm({ title: `End ${visible(known.id)}?`, label: "End the session", done: "Ended", grave: true,
  fields: () => html`<p>Its notes, notepad and todo list are archived in one step: agents find them no longer. What they were can still be read in the past.</p>`,
  send: () => ["POST", sessionPath(known.id, "end"), undefined] });
