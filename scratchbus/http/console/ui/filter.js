// A field that filters as the user types, and suggests values after `type:`, `tag:` and so on.
import { html, useEffect, useId, useRef, useState } from "../lib/base.js";
import { useKeys } from "../lib/keys.js";
import { go } from "../lib/route.js";
import { visible } from "../lib/text.js";

const MAX_OPTIONS = 8;

/** `value` and `onValue(text)`; `suggest(name)` returns the values a name may have, `names` are those names. */
export function Filter({ value, onValue, names, suggest, placeholder }) {
  const input = useRef(null);
  const id = useId();
  const [open, setOpen] = useState(false);
  const [at, setAt] = useState(-1);
  useKeys([{ keys: "/", group: "This view", label: "Filter", run: () => input.current.focus() }]);

  const last = /(?:^|\s)(-?)([a-z_]*)(:?)("?[^\s"]*)$/.exec(value) ?? ["", "", "", "", ""];
  const [, , name, colon, begun] = last;
  const options = colon
    ? names.includes(name) ? suggest(name).filter((each) => each.toLowerCase().startsWith(begun.replace('"', "").toLowerCase()) && each !== begun) : []
    : names.filter((each) => each.startsWith(name) && name !== "").map((each) => `${each}:`);
  const shown = open ? options.slice(0, MAX_OPTIONS) : [];
  useEffect(() => setAt(-1), [value]);

  const take = (option) => {
    const cut = value.length - (colon ? begun.length : name.length);
    const done = colon ? `${/\s/.test(option) ? `"${option}"` : option} ` : option;
    onValue(value.slice(0, cut) + done);
    input.current.focus();
  };
  const onKeyDown = (event) => {
    if (event.key === "ArrowDown" && options.length) setOpen(true), setAt((at + 1) % Math.min(options.length, MAX_OPTIONS));
    else if (event.key === "ArrowUp" && shown.length) setAt((at - 1 + shown.length) % shown.length);
    else if (event.key === "Enter" && at >= 0 && shown[at]) take(shown[at]);
    else if (event.key === "Enter") return document.querySelector(".table-body [role=row][tabindex='0']")?.focus();
    else if (event.key === "Escape" && shown.length) setAt(-1), setOpen(false);
    else if (event.key === "Escape" && value) onValue("");
    else return undefined;
    event.preventDefault();
    return undefined;
  };
  return html`<div class="filter">
    <input ref=${input} type="text" role="combobox" aria-label="Filter" aria-autocomplete="list" aria-expanded=${shown.length > 0}
      aria-controls=${id} aria-activedescendant=${at >= 0 ? `${id}-${at}` : undefined} value=${value} placeholder=${placeholder}
      autocomplete="off" autocapitalize="off" spellcheck="false" title="Filter (/)"
      onInput=${(event) => (setOpen(true), onValue(event.target.value))} onKeyDown=${onKeyDown}
      onFocus=${() => setOpen(true)} onBlur=${() => setOpen(false)} />
    ${value && html`<button type="button" class="icon" aria-label="Clear the filter" onClick=${() => onValue("")}>✕</button>`}
    <ul id=${id} role="listbox" aria-label="Suggestions" hidden=${!shown.length}>${shown.map((option, index) => html`
      <li key=${option} id=${`${id}-${index}`} role="option" aria-selected=${index === at}
        onMouseDown=${(event) => (event.preventDefault(), take(option))}>${visible(option)}</li>`)}</ul>
  </div>`;
}

/** Put a filter into the address. Typing replaces, so that the back button leaves the view rather than a letter. */
export const setFilter = (text) => go({ q: text }, { replace: true });
