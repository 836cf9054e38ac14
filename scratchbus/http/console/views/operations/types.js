// The observation types: their list, and an editor that validates as the user types.
import { html, useEffect, useMemo, useRef, useState } from "../../lib/base.js";
import { get, Problem, write } from "../../lib/api.js";
import { useLoad } from "../../lib/load.js";
import { may, types as known } from "../../lib/state.js";
import { count, Text, visible } from "../../lib/text.js";
import { isPast } from "../../lib/time.js";
import { messageOf, ProblemNote } from "../../ui/problem.js";
import { Priority } from "../../ui/observation.js";
import { toast } from "../../ui/toast.js";
import { Grid, Panel } from "./parts.js";

const YAML = { type: "application/yaml" };
const WAIT = 350; // milliseconds after the last letter

export function Types() {
  const { data, error, reload } = useLoad((signal) => get("/types", {}, { signal }), [], { on: (event) => event.kind === "types_changed", isTimeless: true });
  const [isOpen, setOpen] = useState(false);
  const opener = useRef(null);
  const wasOpen = useRef(false);
  useEffect(() => {
    if (wasOpen.current && !isOpen) opener.current?.focus(); // the editor that had the focus is gone
    wasOpen.current = isOpen;
  }, [isOpen]);
  if (error && !data) return html`<${Panel} id="types" title="Types" wide><${ProblemNote} error=${error} retry=${reload} /><//>`;
  if (!data) return null;
  const columns = [
    { title: "Priority", cell: (it) => html`<${Priority} value=${it.priority} />` },
    { title: "Type", names: true, cell: (it) => html`<strong><${Text} value=${it.name} /></strong>` },
    { title: "What it says", cell: (it) => html`<span class="reason"><${Text} value=${it.description} /></span>` },
    { title: "Lives for", cell: (it) => it.default_ttl ?? html`<span class="quiet">as set</span>` },
    { title: "Owner", cell: (it) => it.default_owner && html`<${Text} value=${it.default_owner} />` },
    { title: "Lifecycle", cell: (it) => html`<${Text} value=${it.lifecycle.name} />` },
  ];
  const done = (changed) => {
    setOpen(false);
    reload();
    if (changed) get("/types").then(({ items }) => (known.value = Object.fromEntries(items.map((each) => [each.name, each]))), () => {});
  };
  return html`<${Panel} id="types" title="Types" wide note=${`${count(data.items.length, "type")}, version ${data.version}`}>
    ${isOpen ? html`<${Editor} text=${data.text} version=${data.version} onDone=${done} />`
      : html`<${Grid} label="Observation types" columns=${columns} rows=${data.items} keyOf=${({ name }) => name} />
        <p class="buttons"><button ref=${opener} type="button" onClick=${() => setOpen(true)}>${may("admin") && !isPast.value ? "Edit the types" : "See them as YAML"}</button></p>`}<//>`;
}

/** A text with line numbers; problems are marked at their lines. */
function Editor({ onDone, ...given }) {
  const [{ text: first, version }] = useState(given); // as opened: it is refused when someone else has published since
  const [text, setText] = useState(first);
  const [checked, setChecked] = useState(null);
  const [state, setState] = useState({ busy: false, error: null });
  const area = useRef(null);
  const gutter = useRef(null);
  const canPush = may("admin") && !isPast.value;
  useEffect(() => {
    area.current.setSelectionRange(0, 0);
    area.current.focus();
  }, []);
  useEffect(() => {
    setChecked(null);
    if (text === first) return undefined;
    let isLast = true;
    const timer = setTimeout(async () => {
      try {
        const answer = await write("POST", "/types/check", text, YAML);
        if (isLast) setChecked(answer);
      } catch (error) {
        if (isLast) setState({ busy: false, error });
      }
    }, WAIT);
    return () => ((isLast = false), clearTimeout(timer));
  }, [text]);

  const push = async () => {
    setState({ busy: true, error: null });
    try {
      const answer = await write("PUT", "/types", text, { ...YAML, version });
      toast(answer.has_changed ? `Published: version ${answer.version}` : "Nothing was different");
      onDone(true);
    } catch (error) {
      setState({ busy: false, error });
    }
  };
  const lines = useMemo(() => text.split("\n").length, [text]);
  const wrong = new Map((checked?.problems ?? []).filter(({ line }) => line).map((each) => [each.line, each]));
  const toLine = (line) => {
    const lineHeight = area.current.scrollHeight / Math.max(lines, 1);
    const start = text.split("\n").slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
    area.current.focus();
    area.current.setSelectionRange(start, start + (text.split("\n")[line - 1]?.length ?? 0));
    area.current.scrollTop = Math.max(0, (line - 6) * lineHeight);
  };
  const onKeyDown = (event) => {
    if (event.key !== "Tab" || event.shiftKey || event.ctrlKey) return;
    const { selectionStart: at, selectionEnd: end } = area.current;
    if (at === end && /^\s*$/.test(text.slice(text.lastIndexOf("\n", at - 1) + 1, at))) {
      event.preventDefault();
      area.current.setRangeText("  ", at, end, "end");
      setText(area.current.value);
    }
  };
  return html`<div class="editor">
    <div class="editor-box ${wrong.size ? "is-wrong" : ""}"><div ref=${gutter} class="gutter" aria-hidden="true">${Array.from({ length: lines }, (_, index) => html`<span key=${index} class=${wrong.has(index + 1) ? "wrong" : ""}>${wrong.has(index + 1) ? "✖ " : ""}${index + 1}</span>`)}</div>
      <textarea ref=${area} aria-label="The types as YAML" aria-invalid=${checked && !checked.is_valid ? "true" : undefined} aria-describedby="types-check" spellcheck="false" wrap="off" readonly=${!canPush} value=${text}
        onInput=${(event) => (setState({ busy: false, error: null }), setText(event.target.value))} onKeyDown=${onKeyDown} onScroll=${() => (gutter.current.scrollTop = area.current.scrollTop)}></textarea></div>
    <div id="types-check" role="status" class="editor-said"><${Said} checked=${checked} isSame=${text === first} toLine=${toLine} canPush=${canPush} />
      ${state.error && html`<p class="wrong"><${Text} value=${refusal(state.error)} /></p>`}</div>
    <p class="buttons">${canPush && html`<button type="button" class="primary" disabled=${state.busy || !checked?.is_valid} onClick=${push}>Publish</button>`}
      <button type="button" onClick=${() => onDone(false)}>${text === first ? "Close" : "Discard"}</button></p>
  </div>`;
}

const refusal = (error) => (error instanceof Problem && error.status === 412 ? "Someone else published since you opened it. Copy your text, close the editor, and open it again." : messageOf(error));

function Said({ checked, isSame, toLine, canPush }) {
  if (isSame) return html`<p class="hint">${canPush ? "It is checked as you type; daemons take what you publish without a restart." : "You may read it; publishing needs the scope admin, and the present."}</p>`;
  if (!checked) return html`<p class="hint">Checking …</p>`;
  if (!checked.is_valid) {
    return checked.problems.map((each) => html`<p key=${each.problem} class="wrong">${each.line ? html`<button type="button" class="text-button" onClick=${() => toLine(each.line)}>line ${each.line}</button> ` : ""}${each.key && html`<code><${Text} value=${each.key} /></code>: `}<${Text} value=${each.problem} />
      ${each.allowed?.length > 0 && html` <span class="quiet">Allowed: ${visible(each.allowed.join(", "))}.</span>`}</p>`);
  }
  const parts = [["added", "new"], ["changed", "changed"], ["removed", "removed"]].filter(([name]) => checked[name].length);
  return html`<p class="fine">Valid${parts.length ? ": " : "; nothing differs."}${parts.map(([name, word], index) => html`${index > 0 && "; "}<strong>${word}</strong> ${visible(checked[name].join(", "))}`)}</p>`;
}
