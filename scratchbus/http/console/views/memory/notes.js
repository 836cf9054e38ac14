// The notes of a session: search, tags, add, edit, delete, history.
import { html } from "../../lib/base.js";
import { useKeys } from "../../lib/keys.js";
import { useLoad } from "../../lib/load.js";
import { go, param } from "../../lib/route.js";
import { may } from "../../lib/state.js";
import { brief, count, Text, visible } from "../../lib/text.js";
import { isPast, positionOf } from "../../lib/time.js";
import { Dialog, Field, openDialog } from "../../ui/dialog.js";
import { Tags } from "../../ui/observation.js";
import { Empty, Loading, ProblemNote } from "../../ui/problem.js";
import { Age, Moment } from "../../ui/times.js";
import { useTyped } from "../../ui/typed.js";
import { openForm } from "./form.js";
import { isAbout, recall, sessionPath } from "./recall.js";

const find = param("find");
const tag = param("tag");
const WAIT = 150; // milliseconds after the last letter

export function Notes({ session }) {
  const [typed, setTyped] = useTyped("find", find, WAIT);
  const { data, error, reload } = useLoad(async (signal) => {
    const [found, { tags }] = await Promise.all([recall(session, ["notes", "search"], { query: find.peek(), tag: tag.peek() ? [tag.peek()] : [] }, { signal }), recall(session, ["notes", "tags"], {}, { signal })]);
    return { notes: found.items, tags: Object.entries(tags).sort((a, b) => b[1] - a[1]) };
  }, [session, find.value, tag.value], { on: isAbout(session, "note_*") });
  const canWrite = may("memory") && !isPast.value;
  useKeys([{ keys: "a", group: "Act", label: "Take a note", when: () => may("memory") && !isPast.peek(), run: () => add(session) }], [session]);
  if (error && !data) return html`<${ProblemNote} error=${error} retry=${reload} />`;
  if (!data) return html`<${Loading} />`;
  return html`<div class="memory-part">
    <div class="memory-bar"><input type="search" aria-label="Search the notes" placeholder="Search the notes" value=${typed} onInput=${(event) => setTyped(event.target.value)} />
      <span class="quiet" role="status">${count(data.notes.length, "note")}</span>
      ${may("memory") && html`<button type="button" disabled=${isPast.value} title="Take a note (a)" onClick=${() => add(session)}>Add a note</button>`}</div>
    ${data.tags.length > 0 && html`<div class="chips note-tags" role="group" aria-label="Filter by tag">${data.tags.map(([name, number]) => html`<button key=${name} type="button" class="chip" aria-pressed=${tag.value === name}
      onClick=${() => go({ tag: tag.peek() === name ? null : name }, { replace: true })}><${Text} value=${name} /> <span class="number">${number}</span></button>`)}</div>`}
    ${data.notes.length ? html`<ul class="notes">${data.notes.map((note) => html`<${Note} key=${note.id} note=${note} session=${session} canWrite=${canWrite} />`)}</ul>`
      : find.value || tag.value ? html`<${Empty} title="No note fits"><p><button type="button" onClick=${() => go({ find: null, tag: null }, { replace: true })}>Show all notes</button></p><//>`
      : html`<${Empty} title=${isPast.value ? "No note was there then" : "No notes yet"}><p>An agent takes one with the tool <code>add_note</code>, a program with <code>bus.notes("${visible(session)}").add(…)</code>.</p><//>`}
  </div>`;
}

function Note({ note, session, canWrite }) {
  const name = `the note “${brief(note.content)}”`;
  return html`<li class="note" id=${note.id}><p class="note-content" dir="auto"><${Text} value=${note.content} lines /></p>
    <div class="note-foot"><span class="tags"><${Tags} tags=${note.tags} /></span>
      <span class="quiet note-who"><${Text} value=${note.source} />, <${Age} at=${note.updated_at} /> ago${note.version > 1 ? `, version ${note.version}` : ""}</span>
      <span class="note-actions"><button type="button" class="small" aria-label="History of ${name}" onClick=${() => openDialog((close) => html`<${History} session=${session} note=${note} onClose=${close} />`)}>History</button>
        ${canWrite && html`<button type="button" class="small" aria-label="Correct ${name}" onClick=${() => correct(session, note)}>Correct</button>
        <button type="button" class="small danger" aria-label="Delete ${name}" onClick=${() => remove(session, note)}>Delete</button>`}</span></div></li>`;
}

const tagsOf = (text) => text.split(/[\s,]+/).filter(Boolean);
const noteFields = (values, set) => html`<${Field} label="Content"><textarea rows="4" required data-autofocus value=${values.content} onInput=${set("content")}></textarea><//>
  <${Field} label="Tags" hint="With spaces between"><input value=${values.tags} onInput=${set("tags")} /><//>`;

const add = (session) => openForm({ title: "Take a note", label: "Add", done: "Noted", wide: true, values: { content: "", tags: "" }, fields: noteFields,
  send: ({ content, tags }) => ["POST", sessionPath(session, "notes"), { content, tags: tagsOf(tags) }] });

const correct = (session, note) => openForm({ title: "Correct the note", label: "Save", done: "Corrected", wide: true, values: { content: note.content, tags: note.tags.join(" ") }, fields: noteFields,
  send: ({ content, tags }) => ["PATCH", sessionPath(session, "notes", note.id), { content, ...(tags === note.tags.join(" ") ? {} : { tags: tagsOf(tags) }) }, { version: note.version }] });

const remove = (session, note) => openForm({ title: "Delete the note?", label: "Delete", done: "Deleted; its history stays", grave: true,
  fields: () => html`<p class="note-content" dir="auto"><${Text} value=${note.content} lines /></p><p class="hint">Agents no longer read it. Its history stays, and so does what the past shows.</p>`,
  send: () => ["DELETE", sessionPath(session, "notes", note.id), undefined, { version: note.version }] });

const TITLES = { note_added: "taken", note_updated: "changed", note_deleted: "deleted", session_ended: "session ended" };

function History({ session, note, onClose }) {
  const { data, error } = useLoad((signal) => recall(session, ["notes", note.id, "history"], {}, { signal }), [note.id]);
  return html`<${Dialog} title="History of the note" onClose=${onClose} wide>
    ${error && html`<${ProblemNote} error=${error} />`}
    <ol class="versions">${data?.items.map((event) => html`<li key=${positionOf(event)}><strong>${TITLES[event.kind] ?? event.kind}</strong> <span class="quiet">by <${Text} value=${event.by} />, <${Moment} at=${event.at} /></span>
      ${event.content && html`<p class="note-content" dir="auto"><${Text} value=${event.content} lines /></p>`}${event.tags && html`<span class="tags"><${Tags} tags=${event.tags} /></span>`}
      <button type="button" class="small" onClick=${() => (onClose(), go({ at: positionOf(event) }))}>Go to this moment</button></li>`)}</ol><//>`;
}
