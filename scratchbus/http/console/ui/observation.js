// Icons and badges for observations and their fields.
import { html, useState } from "../lib/base.js";
import { link } from "../lib/route.js";
import { page } from "../lib/state.js";
import { Text, shortId, visible } from "../lib/text.js";

/** The status as a word with a sign, so that colour is not the only difference. */
export const Status = ({ observation }) =>
  html`<span class="status status-${observation.status_class} status-is-${safe(observation.status)}"
    >${visible(observation.status.replaceAll("_", " "))}</span>`;

/** The priority as a number and a bar. */
export const Priority = ({ value }) => html`<span class="priority priority-${priorityBand(value)}"
  ><span class="priority-bar"><span style=${{ height: `${value}%` }}></span></span><span class="number">${value}</span></span>`;

/** Return "high", "middle" or "low". */
export const priorityBand = (value) => (value >= 80 ? "high" : value >= 50 ? "middle" : "low");

/** The type. */
export const Type = ({ name }) => html`<span class="type">${visible(name)}</span>`;

/** Tags; `onPick(tag)` makes them buttons. */
export const Tags = ({ tags, onPick }) => tags.map((tag) =>
  onPick
    ? html`<button key=${tag} type="button" class="tag" title="Filter by this tag" onClick=${(event) => (event.stopPropagation(), onPick(tag))}
        ><${Text} value=${tag} /></button>`
    : html`<span key=${tag} class="tag"><${Text} value=${tag} /></span>`);

const LONG = { characters: 1000, lines: 14 };

/** The content in full; of a long one the beginning, with a button that shows the rest. `tag` is its element. */
export function Content({ value, tag, className }) {
  const [whole, setWhole] = useState(false);
  const isLong = value.length > LONG.characters || value.split("\n").length > LONG.lines;
  return html`<${tag} class="${className} ${isLong && !whole ? "is-cut" : ""}" dir="auto"><${Text} value=${value} lines /><//>
    ${isLong && html`<button type="button" class="small content-more" aria-expanded=${whole} onClick=${() => setWhole(!whole)}>${whole ? "Show less" : "Show all"}</button>`}`;
}

/** An observation in a line, as a link that selects it: type, content, end of its id. Of one that is not loaded, `from` is its page; without it, the observation is gone. */
export const ObservationBadge = ({ observation, id = observation?.id, from = observation?.page, view }) => {
  const elsewhere = from && from !== page.value ? { page: from } : {};
  return html`<a class="observation-badge" href=${link({ selected: id, ...elsewhere }, view)} title=${id}>
    ${observation && html`<${Type} name=${observation.type} />`}
    <span class="excerpt" dir="auto">${observation ? html`<${Text} value=${observation.content} />` : from ? `from the page ${visible(from)}` : "not on a page any longer"}</span>
    <span class="id">${shortId(id)}</span></a>`;
};

const safe = (name) => name.replaceAll(/[^a-z0-9_-]/gi, "-");
