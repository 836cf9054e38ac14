// A button that opens a menu.
import { html, useEffect, useId, useRef, useState } from "../lib/base.js";

/** `items` are [{label, run, hint?, disabled?, checked?}]; null leaves a line between two. `align` is "left" or "right". */
export function Menu({ label, title, items, className = "", align = "left", children }) {
  const [open, setOpen] = useState(false);
  const box = useRef(null);
  const id = useId();
  const entries = () => [...box.current.querySelectorAll("[role^=menuitem]:not([aria-disabled=true])")];
  const close = (back = true) => (setOpen(false), back && box.current.querySelector("button").focus());

  useEffect(() => {
    if (!open) return undefined;
    entries()[0]?.focus();
    const away = (event) => box.current?.contains(event.target) || setOpen(false);
    document.addEventListener("pointerdown", away);
    return () => document.removeEventListener("pointerdown", away);
  }, [open]);

  const onKeyDown = (event) => {
    if (!open) return;
    const all = entries();
    const at = all.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1 + all.length, Home: 0, End: all.length - 1 }[event.key];
    if (to !== undefined) all[to % all.length]?.focus();
    else if (event.key === "Escape") close();
    else if (event.key === "Tab") return setOpen(false);
    else return undefined;
    event.preventDefault();
    event.stopPropagation();
    return undefined;
  };

  const run = (item) => {
    if (item.disabled) return;
    close();
    item.run();
  };
  return html`<div class="menu" ref=${box} onKeyDown=${onKeyDown}>
    <button type="button" class=${className} aria-haspopup="menu" aria-expanded=${open} aria-controls=${open ? id : undefined}
      aria-label=${label} title=${title} onClick=${() => setOpen(!open)}>${children ?? label}</button>
    ${open && html`<div role="menu" id=${id} aria-label=${label} class="menu-items ${align}">
      ${items.filter((item, index) => item || index).map((item, index) =>
        item
          ? html`<button key=${index} type="button" tabindex="-1" role=${item.checked === undefined ? "menuitem" : "menuitemradio"}
              aria-checked=${item.checked} aria-disabled=${item.disabled ? "true" : undefined} onClick=${() => run(item)}>
              <span>${item.label}</span>${item.hint && html`<small>${item.hint}</small>`}</button>`
          : html`<hr key=${index} />`)}
    </div>`}
  </div>`;
}
