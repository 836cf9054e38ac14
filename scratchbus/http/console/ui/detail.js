// One observation in a panel beside the list: every field, and the actions available.
import { html } from "../lib/base.js";
import { pagePath, Problem, read } from "../lib/api.js";
import { useLoad } from "../lib/load.js";
import { whole } from "../lib/observation.js";
import { link } from "../lib/route.js";
import { page } from "../lib/state.js";
import { count, Text, visible } from "../lib/text.js";
import { isPast } from "../lib/time.js";
import { VIEWS } from "../views.js";
import { act, actionsFor } from "./actions.js";
import { LinkedText } from "./linked.js";
import { Content, ObservationBadge, Priority, Status, Tags, Type } from "./observation.js";
import { Empty, ProblemNote } from "./problem.js";
import { Age, Countdown, Moment } from "./times.js";
import { toast } from "./toast.js";

/** `id` is the observation's; `known` what the list has of it, shown until it is loaded, and as it changes. */
export function Detail({ id, known, onClose }) {
  const { data, error, reload } = useLoad((signal) => read(pagePath(page.value, "observations", id), {}, { signal }), [page.value, id],
    { on: (event) => event.subject === id });
  const observation = known && (!data || known.version >= data.version) ? known : data && whole(data);
  if (!observation && error instanceof Problem && error.status === 404) {
    return html`<${Frame} title="Not on this page" onClose=${onClose}><${Empty} title=${isPast.value ? "It was not on the page then" : "It is not on this page"}>
      <p>${isPast.value ? "It came later, or had left before." : "It may have been cleared, or erased."}</p><//><//>`;
  }
  if (!observation) return html`<${Frame} title="Observation" onClose=${onClose}>${error && html`<${ProblemNote} error=${error} retry=${reload} />`}<//>`;
  return html`<${Frame} title=${html`<${Type} name=${observation.type} />`} onClose=${onClose}>
    <${Content} tag="p" className="detail-content" value=${observation.content} />
    <${Actions} observation=${observation} />
    <${Fields} observation=${observation} />
  <//>`;
}

const Frame = ({ title, onClose, children }) => html`<section class="detail" aria-label="Selected observation">
  <header><h2>${title}</h2><button type="button" class="icon" aria-label="Close" title="Close (Esc)" onClick=${onClose}>✕</button></header>
  <div class="detail-body" tabindex="0" role="group" aria-label="Fields">${children}</div></section>`;

function Actions({ observation }) {
  const story = VIEWS.find(({ name }) => name === "story");
  const copy = () => navigator.clipboard?.writeText(location.href).then(() => toast("Link copied"), () => toast("The browser refused the clipboard", { kind: "error" }));
  return html`<div class="actions" role="group" aria-label="Actions">
    ${actionsFor(observation).map((action) => html`<button key=${action.label} type="button" class=${action.grave ? "danger" : ""} title="${action.label} (${action.key})"
      onClick=${() => act(action, observation)}>${action.label}</button>`)}
    ${story && html`<a class="button" href=${link({ selected: observation.id }, "story")}>Story</a>`}
    ${navigator.clipboard && html`<button type="button" onClick=${copy}>Copy link</button>`}
    ${isPast.value && html`<p class="hint">You look at the past. Press <kbd>l</kbd> to go back to live and act.</p>`}
  </div>`;
}

function Fields({ observation: it }) {
  const row = (name, value) => value !== null && value !== undefined && html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`;
  const json = (value) => Object.keys(value ?? {}).length > 0 ? html`<pre><${Text} value=${JSON.stringify(value, null, 2)} lines /></pre>` : null;
  const badges = (ids) => ids.length ? html`<ul class="badges">${ids.map((id) => html`<li key=${id}><${Evidence} id=${id} /></li>`)}</ul>` : null;
  return html`<dl class="fields">
    ${row("status", html`<${Status} observation=${it} />${it.reason_code ? html` <span class="quiet">${visible(it.reason_code)}</span>` : ""}`)}
    ${row("reason", it.reason && html`<${LinkedText} value=${it.reason} />`)}
    ${row("priority", html`<${Priority} value=${it.priority} />`)}
    ${row("confidence", it.confidence)}
    ${row("source", html`<${Text} value=${it.source} />`)}
    ${row("owner", it.owner && html`<${Text} value=${it.owner} />`)}
    ${row("claim", it.claim && html`<span><${Text} value=${it.claim.by} />, <${Countdown} until=${it.claim.until} soon=${15_000} /> left</span>`)}
    ${row("tags", it.tags.length ? html`<span class="tags"><${Tags} tags=${it.tags} /></span>` : null)}
    ${row("seen", it.occurrences > 1 ? count(it.occurrences, "time") : null)}
    ${row("evidence", badges(it.evidence))}
    ${row("blocked by", badges(it.blocked_by))}
    ${row("led to", it.links.length ? html`<ul>${it.links.map((each) => html`<li key=${each}><${Text} value=${each} /></li>`)}</ul>` : null)}
    ${row("pulled back by", badges(it.chain))}
    ${row("context", json(it.context))}
    ${row("metadata", json(it.metadata))}
    ${row("created", html`<span><${Moment} at=${it.created_at} />, <${Age} at=${it.created_at} /> ago</span>`)}
    ${row("updated", it.version > 1 ? html`<span><${Moment} at=${it.updated_at} />, <${Age} at=${it.updated_at} /> ago</span>` : null)}
    ${row("expires", it.expires_at ? html`<span><${Moment} at=${it.expires_at} />, in <${Countdown} until=${it.expires_at} /></span>` : "never")}
    ${row("version", it.version)}
    ${row("position", html`<code>${it.position}</code>`)}
    ${row("id", html`<code>${it.id}</code>`)}
  </dl>`;
}

const Evidence = ({ id }) => {
  const { data, error } = useLoad((signal) => read(pagePath(page.value, "observations", id), {}, { signal }), [id]);
  const from = error instanceof Problem && error.status === 404 ? "" : page.value;
  return html`<${ObservationBadge} observation=${data && whole(data)} id=${id} from=${data?.page ?? from} />`;
};
