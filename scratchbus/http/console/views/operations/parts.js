// Components shared by the sections of Operations.
import { html } from "../../lib/base.js";
import { Text } from "../../lib/text.js";

/** A section with a heading; `sign` is "good", "warn" or "bad". */
export const Panel = ({ id, title, note, sign, children, wide = false }) => html`<section class="panel ${wide ? "wide" : ""}" aria-labelledby=${id}>
  <h2 id=${id}>${title} ${sign && html`<${Sign} kind=${sign} />`}${note && html` <small>${note}</small>`}</h2>${children}</section>`;

const WORDS = { good: ["●", "all is well"], warn: ["▲", "look at it"], bad: ["✖", "something is wrong"] };
export const Sign = ({ kind }) => html`<span class="sign sign-${kind}" title=${WORDS[kind][1]}><span aria-hidden="true">${WORDS[kind][0]}</span><span class="visually-hidden">${WORDS[kind][1]}</span></span>`;

/** Facts as name and value; null values are left out. */
export const Facts = ({ facts }) => html`<dl class="facts">${facts.filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) =>
  html`<div key=${name}><dt>${name}</dt><dd>${typeof value === "string" ? html`<${Text} value=${value} />` : value}</dd></div>`)}</dl>`;

/** A table that scrolls sideways by itself. `columns` are [{title, cell(row), number?, names?}]; `names` is set for what names the row. */
export const Grid = ({ label, columns, rows, keyOf }) => html`<div class="grid-box" tabindex="0" role="region" aria-label=${label}><table>
  <thead><tr>${columns.map(({ title, number }) => html`<th key=${title} scope="col" class=${number || !title ? "right" : ""}>${title || html`<span class="visually-hidden">Actions</span>`}</th>`)}</tr></thead>
  <tbody>${rows.map((row) => html`<tr key=${keyOf(row)}>${columns.map((column) => html`<${Cell} key=${column.title} column=${column} row=${row} />`)}</tr>`)}</tbody></table></div>`;

function Cell({ column: { title, cell, number, names }, row }) {
  const className = number ? "right number" : title ? "" : "right";
  return names ? html`<th scope="row" class=${className}>${cell(row)}</th>` : html`<td class=${className}>${cell(row)}</td>`;
}

export const number = (value) => value.toLocaleString("en");
