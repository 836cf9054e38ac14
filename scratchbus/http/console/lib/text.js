// Text from data: always rendered as text, with control characters made visible.
import { html } from "./base.js";

const JOINING = "Arab Beng Deva Gujr Guru Khmr Knda Mlym Mong Mymr Orya Sinh Syrc Taml Telu".split(" ").map((script) => `\\p{scx=${script}}`).join("");

// What belongs to the writing: joiners in an emoji and in words of scripts that need them, variants of ideographs, flags
const WRITING = [
  "(?<=\\p{Extended_Pictographic}\\ufe0f?\\p{Emoji_Modifier}?)\\u200d(?=\\p{Extended_Pictographic})",
  `(?<=[${JOINING}])[\\u200c\\u200d](?=[${JOINING}])`,
  "(?<=\\p{scx=Hani})[\\u{e0100}-\\u{e01ef}]",
  "(?<=\\u{1f3f4}[\\u{e0030}-\\u{e007a}]{0,6})[\\u{e0030}-\\u{e007f}]",
].join("|");

// C0 and C1 controls, and characters that reorder or hide text
const UNSEEN = new RegExp(`(?=[\\u0000-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u180e\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u2069\\ufeff\\u{e0000}-\\u{e01ef}])(?!${WRITING}).`, "gsu");

const C0 = "NUL SOH STX ETX EOT ENQ ACK BEL BS TAB LF VT FF CR SO SI DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC FS GS RS US".split(" ");

/** Return the text with control characters as visible signs: ‹ESC›, and ‹202E› for a right-to-left override. */
export const visible = (text) => String(text).replace(UNSEEN, (character) => `‹${sign(character)}›`);

/** The same as elements, the signs set apart. With `lines`, line breaks and tabs stay. */
export function Text({ value, lines = false }) {
  const text = String(value ?? "");
  const parts = [];
  let end = 0;
  for (const { 0: character, index } of text.matchAll(UNSEEN)) {
    const isSpace = character === "\n" || character === "\t";
    if (lines && isSpace) continue;
    parts.push(text.slice(end, index), html`<span class="control ${isSpace ? "is-space" : ""}">${sign(character)}</span>`);
    end = index + character.length;
  }
  return parts.length ? [...parts, text.slice(end)] : text;
}

function sign(character) {
  const code = character.codePointAt(0);
  if (code < C0.length) return C0[code];
  return code === 0x7f ? "DEL" : code.toString(16).toUpperCase().padStart(4, "0");
}

/** Return the beginning of a text, for the name of a control. */
export const brief = (text, most = 60) => visible(text.length > most ? `${text.slice(0, most).trimEnd()} …` : text);

/** Return "1 event", "2 events", "1,234 events". */
export const count = (number, one, many = `${one}s`) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;

/** Return how many rows of all are shown: "3 events", "2 of 3"; if there are older ones, "2 of the newest 1,000". */
export function countShown(shown, all, one, areOlder) {
  const newest = areOlder ? "the newest " : "";
  return shown === all ? `${newest}${count(all, one)}` : `${shown.toLocaleString("en")} of ${newest}${all.toLocaleString("en")}`;
}

/** Return the last part of an id, which differs most: …4AC54WT0M. */
export const shortId = (id) => (id && id.length > 12 ? `…${id.slice(-6)}` : id);

/** An id of an observation within a text. */
export const ID = /\b([0-7][0-9A-HJKMNP-TV-Z]{25})\b/;

/** Return a text with the ids in it as short as `shortId` makes them. */
export const shortIds = (text) => text.split(ID).map((part, index) => (index % 2 ? shortId(part) : part)).join("");

const SIZES = [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]];

/** Return a size as "1.4 MiB". */
export function size(bytes) {
  const [unit, name] = SIZES.find(([least]) => bytes >= least) ?? [1, "bytes"];
  return `${(bytes / unit).toLocaleString("en", { maximumFractionDigits: unit === 1 ? 0 : 1 })} ${name}`;
}
