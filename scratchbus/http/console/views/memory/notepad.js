// The notepad of a session: its text, its versions, a diff of any two, and an editor.
import { html } from "../../lib/base.js";
import { useLoad } from "../../lib/load.js";
import { go, param } from "../../lib/route.js";
import { may } from "../../lib/state.js";
import { count, Text, visible } from "../../lib/text.js";
import { isPast, positionOf, stamp } from "../../lib/time.js";
import { Field } from "../../ui/dialog.js";
import { TextDiff } from "../../ui/diff.js";
import { Empty, Loading, ProblemNote } from "../../ui/problem.js";
import { Moment } from "../../ui/times.js";
import { openForm } from "./form.js";
import { isAbout, recall, sessionPath } from "./recall.js";

const chosen = param("v"); // position of the version shown; "" is the last
const against = param("vs"); // position of the one that it is compared with; "" is none
const WORDS = { append: "added to the end", prepend: "added to the beginning", find_replace: "replaced a part", delete: "deleted a part" };
const titleOf = (event) => (event.kind === "notepad_written" ? "written" : event.kind === "notepad_edited" ? WORDS[event.operation] ?? "edited" : event.kind.replaceAll("_", " "));

export function Notepad({ session }) {
  const { data, error, reload } = useLoad(async (signal) => {
    const textAt = (at) => recall(session, ["notepad"], {}, { signal, ...(at ? { at } : {}) });
    const [now, history, shown, before] = await Promise.all([textAt(""), recall(session, ["notepad", "history"], {}, { signal }), chosen.peek() ? textAt(chosen.peek()) : null, against.peek() ? textAt(against.peek()) : null]);
    return { now, versions: history.items.toReversed(), shown: shown ?? now, before };
  }, [session, chosen.value, against.value], { on: isAbout(session, "notepad") });
  if (error && !data) return html`<${ProblemNote} error=${error} retry=${reload} />`;
  if (!data) return html`<${Loading} />`;
  const { now, versions, shown, before } = data;
  const canWrite = may("memory") && !isPast.value && now.revision !== null;
  if (!versions.length && !now.content) {
    return html`<${Empty} title=${isPast.value ? "The notepad was empty then" : "The notepad is empty"}><p>An agent writes it with the tool <code>update_notepad</code>; it is in every context of the session.</p>
      ${canWrite && html`<p><button type="button" class="primary" onClick=${() => edit(session, now, "")}>Write it</button></p>`}<//>`;
  }
  return html`<div class="memory-part notepad">
    <div class="notepad-text"><div class="memory-bar"><h3>${chosen.value ? "An earlier version" : "The text"}${before ? ", and what differs" : ""}</h3>
        ${chosen.value && html`<button type="button" class="small" onClick=${() => go({ v: null, vs: null }, { replace: true })}>The last version</button>`}
        ${canWrite && (chosen.value ? html`<button type="button" class="small" disabled=${shown.content === now.content} onClick=${() => edit(session, now, shown.content)}>Restore …</button>` : html`<button type="button" onClick=${() => edit(session, now, now.content)}>Correct</button>`)}</div>
      <div class="sheet" tabindex="0" role="group" aria-label="Notepad">${before ? html`<${TextDiff} before=${before.content} after=${shown.content} />` : shown.content ? html`<div class="text-diff" dir="auto"><${Text} value=${shown.content} lines /></div>` : html`<p class="hint">Empty.</p>`}</div></div>
    <section class="notepad-versions" aria-labelledby="versions"><h3 id="versions">${count(versions.length, "version")}</h3>
      <ol class="versions">${versions.map((event, index) => html`<${Version} key=${positionOf(event)} event=${event} previous=${versions[index + 1]} isLast=${index === 0} />`)}</ol></section>
  </div>`;
}

function Version({ event, previous, isLast }) {
  const position = positionOf(event);
  const isShown = chosen.value ? chosen.value === position : isLast;
  const show = (vs) => go({ v: isLast ? null : position, vs: vs ?? null }, { replace: true });
  return html`<li class=${isShown ? "is-shown" : ""}>
    <button type="button" class="version" aria-pressed=${isShown} onClick=${() => show(previous && positionOf(previous))} title="Show it, and what it changed">
      <strong>${titleOf(event)}</strong> <span class="quiet">by ${visible(event.by)}</span> <span class="quiet version-when"><${Moment} at=${event.at} /></span></button>
    ${!isShown && html`<button type="button" class="small" aria-pressed=${against.value === position} aria-label="Compare with the version of ${stamp(Date.parse(event.at))}" title="Compare the version shown with this one" onClick=${() => go({ vs: against.peek() === position ? null : position }, { replace: true })}>Compare</button>`}
  </li>`;
}

const edit = (session, now, content) => openForm({ title: "Correct the notepad", label: "Save", done: "Saved", wide: true, values: { content },
  fields: (values, set) => html`<${Field} label="Text" hint="Empty clears it. The versions before stay."><textarea class="sheet-input" rows="14" data-autofocus value=${values.content} onInput=${set("content")}></textarea><//>`,
  send: (values) => ["PUT", sessionPath(session, "notepad"), { content: values.content }, { version: now.revision }] });
