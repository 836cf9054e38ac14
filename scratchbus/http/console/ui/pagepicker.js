// A dialog that chooses the page.
import { html, useEffect, useState } from "../lib/base.js";
import { go } from "../lib/route.js";
import { loadPages, page, pages } from "../lib/state.js";
import { count, visible } from "../lib/text.js";
import { Dialog, openDialog } from "./dialog.js";

const MAX_PAGES = 200;

/** Open the dialog that chooses the page. */
export const choosePage = () => openDialog((close) => html`<${PagePicker} onClose=${close} />`);

/** Type to narrow the pages; Enter takes the first, or the typed name if it is in none. The last entry opens a page that does not exist yet. */
function PagePicker({ onClose }) {
  const [typed, setTyped] = useState("");
  useEffect(() => void loadPages(), []);
  const name = typed.trim();
  const wanted = name.toLowerCase();
  const isNew = name !== "" && !pages.value.some((each) => each.name === name);
  const fitting = pages.value.filter(({ name }) => name.toLowerCase().includes(wanted));
  const choose = (name) => (onClose(), go({ page: name === "main" ? null : name, selected: null }));
  const submit = () => {
    const found = fitting.find((each) => each.name === name)?.name ?? fitting[0]?.name ?? name;
    if (found) choose(found);
  };
  return html`<${Dialog} title="Page" onClose=${onClose} onSubmit=${submit}>
    <input type="search" aria-label="Name of a page" placeholder="Type a name, such as user:42" value=${typed} autocomplete="off"
      spellcheck="false" data-autofocus onInput=${(event) => setTyped(event.target.value)} />
    <ul class="page-list">${fitting.slice(0, MAX_PAGES).map(({ name, open }) => html`<li key=${name}>
      <button type="button" aria-current=${name === page.value ? "true" : undefined} onClick=${() => choose(name)}>
        <span>${visible(name)}</span><small>${open === undefined ? "" : count(open, "open", "open")}</small></button></li>`)}
      ${isNew && fitting.length > 0 && html`<li><button type="button" onClick=${() => choose(name)}><span>${visible(name)}</span><small>new page</small></button></li>`}</ul>
    ${fitting.length > MAX_PAGES && html`<p class="hint">${count(fitting.length - MAX_PAGES, "more page")}; type to narrow them.</p>`}
    ${!fitting.length && html`<p class="hint">${name
      ? html`No page has this name yet. Press Enter to open it; it begins with its first observation.`
      : "No page has an observation yet."}</p>`}
  <//>`;
}
