// The list of keyboard shortcuts.
import { html } from "../lib/base.js";
import { keyList } from "../lib/keys.js";
import { shortcuts } from "../lib/state.js";
import { Dialog } from "./dialog.js";

const SIGNS = { ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", Escape: "Esc" };

/** The shortcuts of this view, by group, and a switch for those that are a single character. */
export function KeyHelp({ onClose }) {
  const groups = Map.groupBy(keyList.value, (each) => each.group);
  return html`<${Dialog} title="Keyboard shortcuts" onClose=${onClose} wide>
    <div class="key-groups">${[...groups].map(([group, list]) => html`<section key=${group}><h3>${group}</h3><dl>
      ${list.map(({ keys, label }) => html`<div key=${keys}><dt>${keys.split(" ").map((key) =>
        html`<kbd key=${key}>${SIGNS[key] ?? key}</kbd>`)}</dt><dd>${label}</dd></div>`)}</dl></section>`)}
      <section><h3>In a table</h3><dl>
        <div><dt><kbd>↑</kbd><kbd>↓</kbd></dt><dd>Move</dd></div>
        <div><dt><kbd>Enter</kbd></dt><dd>Select</dd></div>
      </dl></section>
    </div>
    <label class="check"><input type="checkbox" checked=${shortcuts.value === "on"}
      onChange=${(event) => (shortcuts.value = event.target.checked ? "on" : "off")} /> Single keys are shortcuts</label>
  <//>`;
}
