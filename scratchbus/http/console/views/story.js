// Story: one observation, from its evidence to its consequences.
import { html, useRef } from "../lib/base.js";
import { pagePath, Problem, read } from "../lib/api.js";
import { useLoad } from "../lib/load.js";
import { byPriority, statusesOf, whole } from "../lib/observation.js";
import { link } from "../lib/route.js";
import { page, selected } from "../lib/state.js";
import { count, Text, visible } from "../lib/text.js";
import { isPast } from "../lib/time.js";
import { useKeys } from "../lib/keys.js";
import { act, actionsFor, keysOfActions } from "../ui/actions.js";
import { LinkedText } from "../ui/linked.js";
import { Content, ObservationBadge, Priority, Status, Tags, Type } from "../ui/observation.js";
import { Empty, Loading, ProblemNote } from "../ui/problem.js";
import { Countdown } from "../ui/times.js";
import { Graph } from "./story/graph.js";
import { Life } from "./story/life.js";
import { Readers } from "./story/readers.js";
import { loadWeb } from "./story/web.js";

const FEW = 12;
const MANY = 100;
const LEAVING = ["cleared", "erased"];

export default function Story() {
  return selected.value ? html`<${Told} key=${`${page.value} ${selected.value}`} id=${selected.value} />` : html`<${Choose} />`;
}

function Told({ id }) {
  const around = useRef(new Set([id])); // the ids of its evidence and of what rests on it
  const concerns = (event) => around.current.has(event.subject) || event.evidence?.some((each) => around.current.has(each)) || event.observations?.[id] !== undefined;
  const { data, error, loading, reload } = useLoad((signal) => loadStory(page.value, id, signal), [page.value, id], { on: concerns });
  const { events, observation, web } = data ?? {};
  around.current = new Set([id, ...(web?.all.keys() ?? [])]);
  useKeys(keysOfActions(() => observation), [observation]);

  if (events?.length === 0 || (error instanceof Problem && error.status === 404)) return html`<${Nowhere} />`;
  const began = events?.find(({ kind }) => kind === "added");
  return html`<div class="story" tabindex="0" role="region" aria-label="Story">
    <${Head} observation=${observation} began=${began} loading=${loading && !data} />
    ${error && html`<${ProblemNote} error=${error} retry=${reload} />`}
    ${web && html`<${Evidence} web=${web} id=${id} />`}
    <div class="story-body">
      <section class="story-life" aria-labelledby="life"><h2 id="life">Life ${events && html`<small>${count(events.length, "event")}</small>`}</h2>${events && html`<${Life} events=${events} />`}</section>
      <div class="story-around">${web && html`<${Around} web=${web} id=${id} observation=${observation ?? web.nodes.get(id)?.observation} />`}</div>
    </div>
  </div>`;
}

/** Return {events, observation, web}; one that has left the page has its events only. */
async function loadStory(name, id, signal) {
  const { items: events } = await read(pagePath(name, "observations", id, "history"), {}, { signal });
  if (!events.length || LEAVING.includes(events.at(-1).kind)) return { events, observation: null, web: null };
  const [found, web] = await Promise.all([read(pagePath(name, "observations", id), {}, { signal }), loadWeb(name, id, signal)]);
  return { events, observation: whole(found), web };
}

/** What it is at the moment shown. */
function Head({ observation, began, loading }) {
  if (!observation) {
    return html`<header class="story-head">${began && !loading && html`<${Content} tag="p" className="story-content" value=${began.content} />
      <p class="hint">It is on the page no longer: cleared, or erased. Its events are kept.</p>`}</header>`;
  }
  const it = observation;
  return html`<header class="story-head">
    <div class="story-line"><${Priority} value=${it.priority} /><${Type} name=${it.type} /><${Status} observation=${it} />
      ${it.occurrences > 1 && html`<span class="quiet">seen ${count(it.occurrences, "time")}</span>`}
      ${it.claim && html`<span class="quiet">claimed by <${Text} value=${it.claim.by} />, <${Countdown} until=${it.claim.until} soon=${15_000} /> left</span>`}
      ${it.status_class === "open" && it.expires_at && html`<span class="quiet">expires in <${Countdown} until=${it.expires_at} soon=${300_000} /></span>`}
      <span class="tags"><${Tags} tags=${it.tags} /></span></div>
    <${Content} tag="h2" className="story-content" value=${it.content} />
    ${it.reason && html`<p class="quiet"><${LinkedText} value=${it.reason} /></p>`}
    <div class="actions" role="group" aria-label="Actions">
      ${actionsFor(it).map((action) => html`<button key=${action.label} type="button" class=${action.grave ? "danger" : ""} title="${action.label} (${action.key})" onClick=${() => act(action, it)}>${action.label}</button>`)}
      <a class="button" href=${link({ selected: it.id }, "now")}>On the page</a></div>
  </header>`;
}

/** Return the actions that it, or what rests on it, led to. */
const actionsOf = (web) => [...new Set([...web.all.values()].flatMap((each) => (each.side === "below" ? [] : each.observation.links)))];

function Evidence({ web, id }) {
  const of = (wanted) => [...web.all.values()].filter(({ side }) => side === wanted).length;
  return html`
    <section aria-labelledby="evidence"><h2 id="evidence">Evidence <small>${web.nodes.size > 1 && `rests on ${of("below")}; ${count(of("above"), "rests", "rest")} on it`}${web.all.size > web.nodes.size ? `; the nearest ${web.nodes.size} are shown` : ""}</small></h2>
      ${web.nodes.size > 1 || actionsOf(web).length
        ? html`<${Graph} web=${web} id=${id} />`
        : html`<p class="hint">It names no evidence, nothing rests on it, and it led to no action. <code>evidence=[ids]</code> says what an observation rests on.</p>`}</section>`;
}

function Around({ web, id, observation }) {
  const back = [...web.all.values()].map((each) => each.observation).filter((each) => each.id !== id && each.chain.includes(id));
  const refuted = observation?.reason_code === "refuted";
  const actions = actionsOf(web);
  return html`
    ${observation?.chain.length > 0 && html`<section aria-labelledby="because"><h2 id="because">Pulled back because of</h2>
      <ol class="badges chain">${observation.chain.map((each) => html`<li key=${each}><${ObservationBadge} observation=${web.all.get(each)?.observation} id=${each} view="story" /></li>`)}</ol></section>`}
    ${(refuted || back.length > 0) && html`<section aria-labelledby="pulled"><h2 id="pulled">Pulled back <small>${refuted ? `by refuting it: ${count(back.length, "observation")}` : `with it: ${count(back.length, "observation")}`}</small></h2>
      ${back.length ? html`<ul class="badges">${back.slice(0, MANY).map((each) => html`<li key=${each.id} class="pulled"><${ObservationBadge} observation=${each} view="story" /><${Status} observation=${each} /></li>`)}</ul>${rest(back, MANY)}`
        : html`<p class="hint">Nothing rested on it.</p>`}</section>`}
    <section aria-labelledby="led"><h2 id="led">Led to <small>${count(actions.length, "action")}</small></h2>
      ${actions.length ? html`<ul class="led">${actions.map((each) => html`<li key=${each} class="graph-action"><span aria-hidden="true">⤳</span><span class="excerpt" dir="auto"><${Text} value=${each} /></span></li>`)}</ul>`
        : html`<p class="hint">No action is linked to it or to what rests on it.</p>`}</section>
    <section aria-labelledby="readers"><h2 id="readers">In a prompt of <small>${count(web.seen.length, "reader")}</small></h2>${observation && html`<${Readers} web=${web} observation=${observation} />`}</section>
    ${web.events.length > 0 && html`<section aria-labelledby="caused"><h2 id="caused">Events it caused <small>${web.events.length}</small></h2>
      <ul class="caused">${web.events.slice(0, FEW * 2).map((each) => html`<li key=${each.id}><strong>${each.kind.replaceAll("_", " ")}</strong> <span class="quiet">by ${visible(each.by)}</span> <${ObservationBadge} observation=${web.all.get(each.subject)?.observation} id=${each.subject} from=${each.page} view="story" /></li>`)}</ul>${rest(web.events, FEW * 2)}</section>`}`;
}

/** Say how many of a list are not shown. */
const rest = (list, shown) => list.length > shown && html`<p class="hint">and ${(list.length - shown).toLocaleString("en")} more</p>`;

const Nowhere = () => html`<${Empty} title=${isPast.value ? "It had not happened yet" : "No such observation on this page"}>
  <p>${isPast.value ? html`Step on with <kbd>→</kbd>, or go back to live with <kbd>l</kbd>.` : html`Choose the page with <kbd>p</kbd>, or another observation.`}</p>
  <p><a class="button" href=${link({ selected: null }, "story")}>Choose an observation</a></p><//>`;

/** What to do while nothing is selected. */
function Choose() {
  const { data, error, reload } = useLoad((signal) => read(pagePath(page.value, "observations"), { status: statusesOf("open"), limit: 200 }, { signal }), [page.value], { on: (event) => event.page === page.peek() });
  const rows = (data?.items ?? []).map(whole).sort(byPriority);
  if (error) return html`<${ProblemNote} error=${error} retry=${reload} />`;
  if (!data) return html`<${Loading} />`;
  if (!rows.length) return html`<${NothingOpen} />`;
  return html`<${Empty} title="Whose story?">
    <p>Its life, the evidence around it, who read it, and what came of it. Select a row in <a href=${link({}, "now")}>Now</a> and press <kbd>2</kbd>, or take one of these:</p>
    <ul class="badges choices">${rows.slice(0, FEW).map((each) => html`<li key=${each.id}><${ObservationBadge} observation=${each} view="story" /></li>`)}</ul><//>`;
}

const NothingOpen = () => html`<${Empty} title="Nothing is open on ${visible(page.value)}${isPast.value ? " then" : ""}">
  <p>A story is the life of one observation, the evidence around it, who read it, and what came of it.</p>
  <p>${isPast.value ? html`Choose another moment below, or <a href=${link({ q: "status:all" }, "now")}>a closed observation</a>.`
    : html`<a href=${link({}, "now")}>Add an observation</a>, or show <a href=${link({ q: "status:all" }, "now")}>closed ones</a>; then select its row and press <kbd>2</kbd>.`}</p><//>`;
