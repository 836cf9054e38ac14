// The todo list of a session, and its tasks.
import { html, useRef } from "../../lib/base.js";
import { path, write } from "../../lib/api.js";
import { useLoad } from "../../lib/load.js";
import { may } from "../../lib/state.js";
import { brief, Text, visible } from "../../lib/text.js";
import { isPast } from "../../lib/time.js";
import { Field } from "../../ui/dialog.js";
import { Empty, Loading, messageOf, ProblemNote } from "../../ui/problem.js";
import { Moment } from "../../ui/times.js";
import { toast } from "../../ui/toast.js";
import { openForm } from "./form.js";
import { eventsOf, isAbout, pageOf, recall, sessionPath } from "./recall.js";

const STATUSES = [["pending", "☐", "to do"], ["in_progress", "◐", "in progress"], ["completed", "☑", "done"], ["cancelled", "☒", "cancelled"]];

export function Todo({ session }) {
  const writes = useRef(Promise.resolve()); // one after the other, since each is based on the list that the one before left
  const own = useRef(null); // the list that the last of them left
  const { data, error, reload } = useLoad((signal) => recall(session, ["todo"], {}, { signal }), [session], { on: isAbout(session, "todo") });
  if (error && !data) return html`<${ProblemNote} error=${error} retry=${reload} />`;
  if (!data) return html`<${Loading} />`;
  const canWrite = may("memory") && !isPast.value;
  const newest = () => (own.current?.revision > data.revision ? own.current : data);
  const change = async (method, todosOf) => {
    try {
      const { todos, revision } = newest();
      own.current = await write(method, sessionPath(session, "todo"), { todos: todosOf(todos) }, { version: revision });
    } catch (problem) {
      toast(problem.status === 412 ? "The list had changed meanwhile; look again" : messageOf(problem), { kind: "error" });
    }
    reload();
  };
  const enqueue = (...given) => (writes.current = writes.current.then(() => change(...given)));
  const setStatus = (id, status) => enqueue("PATCH", () => [{ id, status }]);
  const remove = (id) => enqueue("PUT", (todos) => todos.filter((each) => each.id !== id));
  if (!data.todos.length) return html`<${Empty} title=${isPast.value ? "Nothing was to be done then" : "Nothing to do"}><p>An agent writes the list with the tool <code>todo</code>.</p><//>`;
  return html`<ul class="todo">${data.todos.map((item) => html`<li key=${item.id} class="todo-item is-${item.status}">
    ${canWrite
      ? html`<select aria-label="Status of ${visible(item.content)}" value=${item.status} onChange=${(event) => setStatus(item.id, event.target.value)}>${STATUSES.map(([name, sign, label]) => html`<option key=${name} value=${name} selected=${name === item.status}>${sign} ${label}</option>`)}</select>`
      : html`<span class="todo-status">${STATUSES.find(([name]) => name === item.status)?.slice(1).join(" ")}</span>`}
    <span class="todo-content" dir="auto"><${Text} value=${item.content} lines /></span>
    ${canWrite && html`<span class="note-actions"><button type="button" class="small" aria-label="Correct ${brief(item.content)}" onClick=${() => correct(session, item, newest)}>Correct</button>
      <button type="button" class="small danger" aria-label="Delete ${brief(item.content)}" onClick=${() => remove(item.id)}>Delete</button></span>`}</li>`)}</ul>`;
}

const correct = (session, item, newest) => openForm({ title: "Correct the item", label: "Save", done: "Corrected", values: { content: item.content },
  fields: (values, set) => html`<${Field} label="What to do"><textarea rows="3" required data-autofocus value=${values.content} onInput=${set("content")}></textarea><//>`,
  send: ({ content }) => ["PATCH", sessionPath(session, "todo"), { todos: [{ id: item.id, content }] }, { version: newest().revision }] });

export function Tasks({ session }) {
  const { data, error, reload } = useLoad((signal) => eventsOf(pageOf(session), ["task_begun", "task_ended"], signal, 500), [session], { on: isAbout(session, "task_*") });
  if (error && !data) return html`<${ProblemNote} error=${error} retry=${reload} />`;
  if (!data) return html`<${Loading} />`;
  const tasks = new Map();
  for (const event of data) tasks.set(event.subject, { ...tasks.get(event.subject), [event.kind]: event });
  const canWrite = may("memory") && !isPast.value;
  if (!tasks.size) return html`<${Empty} title=${isPast.value ? "No task had begun then" : "No tasks yet"}><p>A task is a part of a conversation that its summary replaces: <code>begin_task</code>, then <code>end_task</code>.</p><//>`;
  return html`<ul class="tasks">${[...tasks].toReversed().map(([id, { task_begun: begun, task_ended: ended }]) => html`<li key=${id} class="note">
    <p><strong><${Text} value=${begun?.title ?? id} /></strong> <span class="status ${ended ? "" : "status-open"}">${ended ? "ended" : "going on"}</span></p>
    ${ended && html`<p class="note-content" dir="auto"><${Text} value=${ended.summary} lines /></p>`}
    <div class="note-foot"><span class="quiet">${begun && html`begun by <${Text} value=${begun.by} />, <${Moment} at=${begun.at} />`}${ended && html`; ended <${Moment} at=${ended.at} />`}</span>
      ${canWrite && !ended && html`<span class="note-actions"><button type="button" class="small" aria-label="End ${brief(begun?.title ?? id)}" onClick=${() => end(session, id, begun)}>End</button></span>`}</div></li>`)}</ul>`;
}

const end = (session, id, begun) => openForm({ title: `End “${visible(begun.title)}”`, label: "End the task", done: "Ended", values: { summary: "" },
  fields: (values, set) => html`<${Field} label="What it came to" hint="It replaces everything that was said and done for the task."><textarea rows="4" required data-autofocus value=${values.summary} onInput=${set("summary")}></textarea><//>`,
  send: ({ summary }) => ["POST", path("tasks", id.includes("@") ? id : `${id}@${session}`, "end"), { summary }] });
