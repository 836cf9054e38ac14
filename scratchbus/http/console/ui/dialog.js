// Dialogs, one at a time. The browser traps the focus inside; afterwards, what had it before has it again,
// or the row that has taken its place.
import { cloneElement, html, signal, useEffect, useId, useRef } from "../lib/base.js";
import { newKey } from "../lib/api.js";
import { Banner } from "./banner.js";

const shown = signal(null);

/** Show a dialog: `openDialog((close) => html`<${Dialog} title="…" onClose=${close}>…<//>`)`. */
export const openDialog = (make) => (shown.value = make);

/** Close the dialog. */
export const closeDialog = () => (shown.value = null);

/** Where dialogs appear; the shell has one. */
export const Dialogs = () => shown.value?.(closeDialog);

/** A dialog; `actions` are its buttons. Escape and a click beside it close it. */
export function Dialog({ title, onClose, actions, wide = false, onSubmit, children }) {
  const element = useRef(null);
  const id = useId();
  useEffect(() => {
    const before = document.activeElement;
    const rows = before.closest("[role=rowgroup]"); // where a row that leaves has a successor
    element.current.showModal();
    const find = (selector) => element.current.querySelector(selector);
    (find("[data-autofocus]") ?? find(".dialog-body :is(input, select, textarea)"))?.focus();
    return () => {
      (before.isConnected ? before : rows?.querySelector("[role=row][tabindex='0']"))?.focus({ preventScroll: true });
      if (document.activeElement === document.body) document.querySelector("main").focus();
    };
  }, []);
  const submit = (event) => (event.preventDefault(), onSubmit?.(event));
  return html`<dialog ref=${element} class=${wide ? "wide" : ""} aria-labelledby=${id}
    onCancel=${(event) => (event.preventDefault(), onClose())}
    onMouseDown=${(event) => event.target === element.current && onClose()}>
    <div role="status"><${Banner} /></div>
    <form method="dialog" onSubmit=${submit}>
      <header><h2 id=${id}>${title}</h2><button type="button" class="icon" aria-label="Close" onClick=${onClose}>✕</button></header>
      <div class="dialog-body">${children}</div>
      ${actions && html`<footer>${actions}</footer>`}
    </form>
  </dialog>`;
}

/** A labelled field of a form: `<${Field} label="Content" hint="…"><textarea …/><//>`; its child gets the label's id. */
export function Field({ label, hint, error, children }) {
  const id = useId();
  const child = Array.isArray(children) ? children[0] : children;
  const described = { id, "aria-describedby": hint || error ? `${id}-hint` : undefined, "aria-invalid": error ? "true" : undefined };
  return html`<div class="field"><label for=${id}>${label}</label>${cloneElement(child, described)}
    ${(error || hint) && html`<p id=${`${id}-hint`} class=${error ? "field-error" : "hint"}>${error || hint}</p>`}</div>`;
}

/** Return a function whose key stays the same while a form sends the same, so that sending again never does it twice. */
export function useKeyOf(sent) {
  const kept = useRef({ text: null, key: null });
  return () => {
    const text = JSON.stringify(sent);
    if (kept.current.text !== text) kept.current = { text, key: newKey() };
    return kept.current.key;
  };
}
