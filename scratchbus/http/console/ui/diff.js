// Differences as elements: deleted and inserted text, and fields with their values before and after.
import { html } from "../lib/base.js";
import { diffText } from "../lib/diff.js";
import { Text } from "../lib/text.js";

const TAGS = { same: "span", gone: "del", new: "ins" };

/** Two texts as one, with what is gone and what is new marked; `by` is "words" or "lines". */
export const TextDiff = ({ before, after, by = "words" }) =>
  html`<div class="text-diff" dir="auto">${diffText(before, after, by).map(({ kind, text }, index) =>
    html`<${TAGS[kind]} key=${index}><${Text} value=${text} lines /><//>`)}</div>`;

/** A field whose value changed. */
export function FieldDiff({ name, before, after }) {
  if (typeof before === "string" && typeof after === "string" && before.length + after.length > 40) {
    return html`<${Row} name=${name}><${TextDiff} before=${before} after=${after} /><//>`;
  }
  if (isList(before) && isList(after)) {
    return html`<${Row} name=${name}>${[...before.filter((each) => !after.includes(each)).map((each) => ["del", each]), ...after.filter((each) => !before.includes(each)).map((each) => ["ins", each])]
      .map(([tag, each]) => html`<${tag} key=${tag + each}><${Text} value=${shown(each)} /><//> `)}<//>`;
  }
  if (isObject(before) && isObject(after)) {
    return Object.keys({ ...before, ...after }).filter((key) => !equal(before[key], after[key])).map((key) =>
      html`<${FieldDiff} key=${key} name=${`${name}.${key}`} before=${before[key]} after=${after[key]} />`);
  }
  return html`<${Row} name=${name}>${isGiven(before) && html`<del><${Text} value=${shown(before)} /></del>`}${isGiven(before) && " "}
    ${isGiven(after) && html`<ins><${Text} value=${shown(after)} /></ins>`}<//>`;
}

const Row = ({ name, children }) => html`<div class="field-diff"><dt><${Text} value=${name} /></dt><dd>${children}</dd></div>`;

const isList = Array.isArray;
const isObject = (value) => typeof value === "object" && value !== null && !isList(value);
const isGiven = (value) => value !== null && value !== undefined && value !== "";
const equal = (a, b) => JSON.stringify(a) === JSON.stringify(b);
const shown = (value) => (typeof value === "string" ? value : JSON.stringify(value));
