// The scratchpad of an agent, which only that agent reads.
import { html } from "../../lib/base.js";
import { path, read, versionOf } from "../../lib/api.js";
import { useLoad } from "../../lib/load.js";
import { caller, may } from "../../lib/state.js";
import { Text, visible } from "../../lib/text.js";
import { isPast } from "../../lib/time.js";
import { Field } from "../../ui/dialog.js";
import { Empty, Loading, ProblemNote } from "../../ui/problem.js";
import { openForm } from "./form.js";

export function Scratchpad({ agent }) {
  const isOwn = caller.value?.kind === "subagent" && caller.value.source === agent;
  return isOwn ? html`<${Own} agent=${agent} />` : html`<${Others} agent=${agent} />`;
}

function Own({ agent }) {
  const { data, error, reload } = useLoad((signal) => read(path("agents", agent, "scratchpad"), {}, { signal, silent: "" }), [agent], { on: (event) => event.page === `agent:${agent}` });
  if (error) return html`<${ProblemNote} error=${error} retry=${reload} />`;
  if (!data) return html`<${Loading} />`;
  const canWrite = may("memory") && !isPast.value;
  return html`<div class="memory-part"><div class="memory-bar"><h3>Scratchpad</h3>${canWrite && html`<button type="button" onClick=${() => edit(agent, data)}>Correct</button>`}</div>
    <div class="sheet" tabindex="0" role="group" aria-label="Scratchpad">${data.content ? html`<div class="text-diff" dir="auto"><${Text} value=${data.content} lines /></div>` : html`<p class="hint">Empty.</p>`}</div></div>`;
}

const Others = ({ agent }) => html`<${Empty} title="Only ${visible(agent)} reads its scratchpad"><p>What an agent writes down for itself stays with it: nobody else is shown it, an operator neither. You are <strong>${visible(caller.value?.source ?? "someone else")}</strong>.</p>
  <p>The console of a token that speaks as this agent shows it.</p><//>`;

const edit = (agent, data) => openForm({ title: "Correct the scratchpad", label: "Save", done: "Saved", wide: true, values: { content: data.content },
  fields: (values, set) => html`<${Field} label="Text"><textarea class="sheet-input" rows="12" data-autofocus value=${values.content} onInput=${set("content")}></textarea><//>`,
  send: ({ content }) => ["PUT", path("agents", agent, "scratchpad"), { content }, { version: versionOf(data) ?? data.revision }] });
