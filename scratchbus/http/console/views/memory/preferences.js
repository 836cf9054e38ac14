// The preferences of a scope: how someone wants things done, who recorded each, and earlier versions.
import { html } from "../../lib/base.js";
import { get } from "../../lib/api.js";
import { useKeys } from "../../lib/keys.js";
import { useLoad } from "../../lib/load.js";
import { go, param } from "../../lib/route.js";
import { may } from "../../lib/state.js";
import { count, Text, visible } from "../../lib/text.js";
import { isPast, moment, positionOf } from "../../lib/time.js";
import { TextDiff } from "../../ui/diff.js";
import { Dialog, Field, openDialog } from "../../ui/dialog.js";
import { Empty, Loading, ProblemNote } from "../../ui/problem.js";
import { Age, Moment } from "../../ui/times.js";
import { openForm } from "./form.js";
import { pageOfScope, scopePath } from "./scope.js";

const MANY = 6;
const find = param("find");

export function Preferences({ scope }) {
  const { data, error, reload } = useLoad((signal) => get(scopePath(scope, "preferences"), { at: moment.peek() }, { signal }), [scope], { on: (event) => event.page === pageOfScope(scope) && event.subject.startsWith("preference_") });
  useKeys([{ keys: "a", group: "Act", label: "Add a preference", when: () => may("memory") && !isPast.peek(), run: () => edit(scope, null) }], [scope]);
  if (error && !data) return html`<${ProblemNote} error=${error} retry=${reload} />`;
  if (!data) return html`<${Loading} />`;
  const canWrite = may("memory") && !isPast.value;
  const search = (text) => go({ find: text }, { replace: true });
  const shown = data.items.filter(({ key, text }) => `${key}\n${text}`.toLowerCase().includes(find.value.trim().toLowerCase()));
  if (!data.items.length) {
    return html`<${Empty} title=${isPast.value ? "There were no preferences then" : "No preferences yet"}><p>How someone wants things done: it outlives sessions, and every context of the scope shows it. An agent writes one with the tool <code>remember_preference</code>, a person here or with</p>
      <pre>scratchbus memory add "quotes in JS" "always use double quotes" --scope ${visible(scope)}</pre>
      ${canWrite && html`<p><button type="button" class="primary" onClick=${() => edit(scope, null)}>Add one</button></p>`}<//>`;
  }
  return html`<div class="memory-part">
    <div class="memory-bar">${data.items.length > MANY && html`<input type="search" aria-label="Search the preferences" placeholder="Search the preferences" value=${find.value} onInput=${(event) => search(event.target.value)} />`}
      <span class="quiet" role="status">${shown.length === data.items.length ? count(shown.length, "preference") : `${shown.length} of ${data.items.length}`}</span>
      ${may("memory") && html`<button type="button" disabled=${isPast.value} title="Add a preference (a)" onClick=${() => edit(scope, null)}>Add a preference</button>`}</div>
    ${shown.length ? html`<ul class="notes">${shown.map((each) => html`<${Preference} key=${each.id} preference=${each} scope=${scope} canWrite=${canWrite} />`)}</ul>`
      : html`<${Empty} title="No preference fits"><p><button type="button" onClick=${() => search("")}>Show all</button></p><//>`}
  </div>`;
}

function Preference({ preference, scope, canWrite }) {
  const { key, text, said_by: said, source, version } = preference;
  return html`<li class="note"><h3 class="preference-key" dir="auto"><${Text} value=${key} /></h3><p class="note-content" dir="auto"><${Text} value=${text} lines /></p>
    <div class="note-foot"><span class="quiet note-who">said by <${Text} value=${said} />, <${Age} at=${preference.updated_at} /> ago${source === said ? "" : html`; written by <${Text} value=${source} />`}${version > 1 ? `; version ${version}` : ""}</span>
      <span class="note-actions"><button type="button" class="small" aria-label="History of ${visible(key)}" onClick=${() => openDialog((close) => html`<${History} scope=${scope} preference=${preference} onClose=${close} />`)}>History</button>
        ${canWrite && html`<button type="button" class="small" aria-label="Edit ${visible(key)}" onClick=${() => edit(scope, preference)}>Edit</button>
        <button type="button" class="small danger" aria-label="Forget ${visible(key)}" onClick=${() => forget(scope, preference)}>Forget</button>`}</span></div></li>`;
}

/** Open the form of a preference; without one, of a new one. */
const edit = (scope, preference) => openForm({ title: preference ? "Edit the preference" : "Add a preference", label: "Save", done: preference ? "Saved; what it said before is in the history" : "Remembered", wide: true,
  values: { key: preference?.key ?? "", text: preference?.text ?? "" }, version: preference?.version ?? 0, current: (values) => currentOf(scope, preference, values.key),
  fields: (values, set) => html`${preference ? html`<p class="about"><strong><${Text} value=${preference.key} /></strong></p>` : html`<${Field} label="What it is about" hint="A few words, such as: quotes in JS"><input required maxlength="200" data-autofocus value=${values.key} onInput=${set("key")} /><//>`}
    <${Field} label="How it is to be done"><textarea rows="3" required data-autofocus=${preference ? "" : undefined} value=${values.text} onInput=${set("text")}></textarea><//>`,
  send: ({ key, text }, version) => ["PUT", scopePath(scope, "preferences"), { key, text }, { version }] });

/** Return {text, version} of a preference as it is now; the text is null if it was forgotten. A new one is known by its key. */
async function currentOf(scope, preference, key) {
  const { items } = await get(scopePath(scope, "preferences", "history"), { key: preference?.key ?? key });
  const last = items.at(-1);
  return { text: last?.kind === "preference_remembered" ? last.text : null, version: items.length };
}

const forget = (scope, preference) => openForm({ title: "Forget the preference?", label: "Forget", done: "Forgotten; its history stays", grave: true, values: { text: preference.text }, version: preference.version, current: () => currentOf(scope, preference),
  fields: () => html`<p class="about"><strong><${Text} value=${preference.key} /></strong></p><p class="note-content" dir="auto"><${Text} value=${preference.text} lines /></p><p class="hint">No context shows it any longer. Its history stays, and so does what the past shows.</p>`,
  send: (values, version) => ["DELETE", scopePath(scope, "preferences"), undefined, { version, query: { key: preference.key } }] });

function History({ scope, preference, onClose }) {
  const { data, error } = useLoad((signal) => get(scopePath(scope, "preferences", "history"), { key: preference.key, at: moment.peek() }, { signal }), [scope, preference.id]);
  const events = data?.items ?? [];
  return html`<${Dialog} title="History of “${visible(preference.key)}”" onClose=${onClose} wide>
    ${error && html`<${ProblemNote} error=${error} />`}
    <ol class="versions">${events.map((event, index) => html`<li key=${positionOf(event)}><strong>${event.kind === "preference_forgotten" ? "forgotten" : event.kind === "erased" ? "erased" : index ? "changed" : "remembered"}</strong> <span class="quiet">by <${Text} value=${event.by} />, <${Moment} at=${event.at} />${event.said_by && event.said_by !== event.by ? html`; said by <${Text} value=${event.said_by} />` : ""}</span>
      ${event.text && html`<div class="note-content" dir="auto">${events[index - 1]?.text ? html`<${TextDiff} before=${events[index - 1].text} after=${event.text} />` : html`<${Text} value=${event.text} lines />`}</div>`}
      <button type="button" class="small" onClick=${() => (onClose(), go({ at: positionOf(event) }))}>Go to this moment</button></li>`)}</ol><//>`;
}
