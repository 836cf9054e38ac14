// Toasts: short messages that disappear by themselves, announced to screen readers.
import { html, signal } from "../lib/base.js";
import { Text } from "../lib/text.js";

const toasts = signal([]);
let number = 0;

/** Show a message; `kind` is "done" or "error", `action` {label, run}. Errors stay until they are closed. */
export function toast(message, { kind = "done", action = null } = {}) {
  const id = ++number;
  toasts.value = [...toasts.value.slice(-3), { id, message, kind, action }];
  if (kind !== "error") setTimeout(() => drop(id), action ? 9000 : 5000);
}

const drop = (id) => (toasts.value = toasts.value.filter((each) => each.id !== id));

/** Where messages appear; the shell has one. */
export function Toasts() {
  return html`<div class="toasts" role="region" aria-label="Messages">
    <div role="status">${toasts.value.filter((each) => each.kind !== "error").map(one)}</div>
    <div role="alert">${toasts.value.filter((each) => each.kind === "error").map(one)}</div>
  </div>`;
}

const one = ({ id, message, kind, action }) => html`<div key=${id} class="toast ${kind}">
  <span><${Text} value=${message} /></span>
  ${action && html`<button type="button" onClick=${() => (drop(id), action.run())}>${action.label}</button>`}
  <button type="button" class="icon" aria-label="Dismiss" onClick=${() => drop(id)}>✕</button>
</div>`;
