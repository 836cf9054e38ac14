// The private files of a session: their names and sizes, and the text of one.
import { html } from "../../lib/base.js";
import { get } from "../../lib/api.js";
import { useLoad } from "../../lib/load.js";
import { link } from "../../lib/route.js";
import { count, size, Text, visible } from "../../lib/text.js";
import { isPast } from "../../lib/time.js";
import { Dialog, openDialog } from "../../ui/dialog.js";
import { Empty, Loading, ProblemNote } from "../../ui/problem.js";
import { Moment } from "../../ui/times.js";
import { eventsOf, pageOf, sessionPath } from "./recall.js";
import { NONE } from "./tree.js";

const MAX_BYTES = 1_000_000; // bytes of a file that is shown
const LAST = 1000; // events that say which files there were

export function Files({ session, sessions }) {
  const root = rootOf(session, sessions);
  const { data, error, reload } = useLoad((signal) => (isPast.peek() ? filesThen(root, signal) : get(sessionPath(session, "files"), {}, { signal })), [session, root], { on: (event) => event.page === pageOf(root) && event.subject.startsWith("file_") });
  if (error && !data) return html`<${ProblemNote} error=${error} retry=${reload} />`;
  if (!data) return html`<${Loading} />`;
  const from = root !== session && html`<p class="hint">They are those of <a href=${link({ ...NONE, session: root, tab: "files" }, "memory")}><${Text} value=${root} /></a>, from which this session began.</p>`;
  if (!data.items.length) {
    return html`<${Empty} title=${isPast.value ? "There were no files then" : "No files"}><p>Scripts and drafts of an agent, outside every workspace: a program writes them, or finds the directory for them, with</p>
      <pre>bus.files("${visible(session)}").write("scripts/check.py", "print('checked')")</pre>${from}<//>`;
  }
  return html`<div class="memory-part">
    <div class="memory-bar"><h3>Private files <small>${count(data.items.length, "file")}, ${size(data.items.reduce((sum, each) => sum + each.size, 0))}</small></h3></div>
    ${from}${isPast.value && html`<p class="hint">The log has their names and sizes; what they contained is only on disk, as it is now.</p>`}
    <table class="files-table"><thead><tr><th scope="col">Path</th><th scope="col" class="file-size">Size</th><th scope="col" class="file-by">Written by</th><th scope="col" class="file-at">At</th></tr></thead>
      <tbody>${data.items.map((file) => html`<tr key=${file.path}><td>${isPast.value ? html`<span class="file-path"><${Text} value=${file.path} /></span>`
        : html`<button type="button" class="text-button file-path" title="SHA-256 ${file.sha256}" onClick=${() => openDialog((close) => html`<${Content} session=${session} file=${file} onClose=${close} />`)}><${Text} value=${file.path} /></button>`}</td>
        <td class="file-size number">${size(file.size)}</td><td class="quiet file-by"><${Text} value=${file.source} /></td><td class="quiet file-at"><${Moment} at=${file.updated_at} /></td></tr>`)}</tbody></table></div>`;
}

/** Return the session whose files a session uses: one that was begun from another, and is no fork, has those of the other. */
function rootOf(session, sessions) {
  const known = sessions.find(({ id }) => id === session);
  return known?.parent && !known.fork ? rootOf(known.parent, sessions) : session;
}

/** Return the files that the log listed at the moment shown. */
async function filesThen(root, signal) {
  const files = new Map();
  for (const event of await eventsOf(pageOf(root), ["file_written", "file_removed"], signal, LAST)) {
    if (event.kind === "file_removed") files.delete(event.path);
    else files.set(event.path, { path: event.path, size: event.size, source: event.by, updated_at: event.at });
  }
  return { items: [...files.values()].sort((a, b) => (a.path < b.path ? -1 : 1)) };
}

/** The text of a file, in a dialog. */
function Content({ session, file, onClose }) {
  const isLarge = file.size > MAX_BYTES;
  const { data, error, reload } = useLoad((signal) => (isLarge ? null : get(sessionPath(session, "files", "content"), { path: file.path }, { signal })), [file.path]);
  const text = data && textOf(data);
  return html`<${Dialog} title=${visible(file.path)} onClose=${onClose} wide>
    <p class="quiet">${size(file.size)}, written by <${Text} value=${file.source} />, <${Moment} at=${file.updated_at} /></p>
    ${error && html`<${ProblemNote} error=${error} retry=${reload} />`}
    ${isLarge ? html`<p class="hint">It is too large to be shown here.</p>` : data && (text === null ? html`<p class="hint">It is not text.</p>` : html`<pre class="file-content" tabindex="0" aria-label="The text of the file"><${Text} value=${text} lines /></pre>`)}<//>`;
}

/** Return bytes as text, or null when they are none. */
function textOf(bytes) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    return text.includes("\0") ? null : text;
  } catch {
    return null;
  }
}
