// Recall: what the selected memories know about a question, each result with the reasons for its rank.
import { html, useRef } from "../../lib/base.js";
import { get } from "../../lib/api.js";
import { useKeys } from "../../lib/keys.js";
import { useLoad } from "../../lib/load.js";
import { go, link, param } from "../../lib/route.js";
import { page, pages } from "../../lib/state.js";
import { count, Text, visible } from "../../lib/text.js";
import { isPast, moment } from "../../lib/time.js";
import { Empty, ProblemNote } from "../../ui/problem.js";
import { useTyped } from "../../ui/typed.js";
import { scopesOf } from "./scope.js";
import { NONE } from "./tree.js";

const WAIT = 250; // milliseconds after the last letter
const MAX_RESULTS = 20; // results
const MANY = 10; // memories of one sort that are offered
const question = param("ask");
const places = param("in"); // "scope:ada session:s1 page:main"; "" is the one that is open

const WHY = { words: "its words", meaning: "its meaning", neighbours: "facts lead to it", freshness: "how new it is", priority: "its priority" };

export function Recall({ scope, session, agent, sessions }) {
  const [typed, setTyped] = useTyped("ask", question, WAIT);
  const input = useRef(null);
  useKeys([{ keys: "/", group: "This view", label: "Ask", run: () => input.current.focus() }]);
  const own = scope ? `scope:${scope}` : session ? `session:${session}` : `page:${page.value}`;
  const chosen = places.value ? places.value.split(" ") : [own];
  const named = (kind) => chosen.filter((each) => each.startsWith(`${kind}:`)).map((each) => each.slice(kind.length + 1));
  const { data, error, reload } = useLoad((signal) => (question.peek() ? get("/recall", { query: question.peek(), scope: named("scope"), session: named("session"), page: named("page")[0], at: moment.peek(), limit: MAX_RESULTS }, { signal }) : null), [question.value, chosen.join(" ")]);
  const toggle = (place) => {
    const next = chosen.includes(place) ? chosen.filter((each) => each !== place) : [...chosen.filter((each) => !(place.startsWith("page:") && each.startsWith("page:"))), place];
    go({ in: next.length && next.join(" ") !== own ? next.join(" ") : null }, { replace: true });
  };
  const offered = [...new Set([own, ...scopesOf(pages.value).slice(0, MANY).map((name) => `scope:${name}`), `page:${page.value}`, ...sessions.filter(({ ended }) => !ended).slice(0, MANY).map(({ id }) => `session:${id}`), ...chosen])];
  return html`<div class="memory-part recall">
    <div class="memory-bar"><input ref=${input} type="search" aria-label="Ask the memories" placeholder="Ask, such as: which database does the shop use?" title="Ask (/)" value=${typed} onInput=${(event) => setTyped(event.target.value)} />
      <span class="quiet" role="status">${data ? count(data.items.length, "result") : ""}</span></div>
    <div class="chips note-tags" role="group" aria-label="Where to look">${offered.map((place) => html`<button key=${place} type="button" class="chip" aria-pressed=${chosen.includes(place)} onClick=${() => toggle(place)}>
      <span class="quiet">${place.slice(0, place.indexOf(":"))}</span> <${Text} value=${place.slice(place.indexOf(":") + 1)} /></button>`)}</div>
    ${error && html`<${ProblemNote} error=${error} retry=${reload} />`}
    ${!question.value ? html`<${Empty} title="What do you want to know?"><p>Notes, notepads, facts, preferences and observations are ranked by their words, by what facts connect, by age and priority. Choose above where to look; each result says why it is there.</p><//>`
      : data && (data.items.length ? html`<ol class="notes results">${data.items.map((item, index) => html`<${Result} key=${`${item.page} ${item.id}`} item=${item} rank=${index + 1} />`)}</ol>`
        : html`<${Empty} title=${isPast.value ? "Nothing was found then" : "Nothing was found"}><p>Choose more places above, or other words: they are searched in any grammatical form, but not by meaning.</p><//>`)}
  </div>`;
}

function Result({ item, rank }) {
  const [where, address] = placeOf(item);
  return html`<li class="note"><div class="result-head"><span class="number quiet">${rank}</span> <strong>${visible(item.kind)}</strong> <a href=${address}>${where}</a> <small class="number" title="Score of all reasons together">${item.score.toFixed(4)}</small></div>
    <p class="note-content" dir="auto"><${Text} value=${item.text} lines /></p>
    <ul class="reasons" aria-label="Why it was found">${item.reasons.map(({ list, rank: place, by }) => html`<li key=${list}><span class="reason" title="${place} in the list by ${visible(list)}">${WHY[list] ?? visible(list)}${by ? html`: <em><${Text} value=${by} /></em>` : ""} <span class="number">#${place}</span></span></li>`)}</ul></li>`;
}

/** Return where a result is, in words and as an address. */
function placeOf({ kind, page: at, id, text }) {
  const name = at.slice(at.indexOf(":") + 1);
  if (kind === "fact") return [html`in scope <${Text} value=${name} />`, link({ ...NONE, scope: name, fact: id }, "memory")];
  if (kind === "preference") return [html`in scope <${Text} value=${name} />`, link({ ...NONE, scope: name, tab: "preferences" }, "memory")];
  if (kind === "note") return [html`of session <${Text} value=${name} />`, link({ ...NONE, session: name, find: text.split(/[\n…]/)[0].slice(0, 60) }, "memory")];
  if (kind === "notepad") return [html`of session <${Text} value=${name} />`, link({ ...NONE, session: name, tab: "notepad" }, "memory")];
  return [html`on page <${Text} value=${at} />`, link({ page: at, selected: id }, "story")];
}
