// Who had an observation in a prompt, and the actions that followed.
import { html } from "../../lib/base.js";
import { link } from "../../lib/route.js";
import { count, Text, visible } from "../../lib/text.js";
import { compareTimes, duration } from "../../lib/time.js";
import { ObservationBadge } from "../../ui/observation.js";
import { Moment } from "../../ui/times.js";

/** `web` is what `loadWeb` returns; `observation` the one that it is about. */
export function Readers({ web, observation }) {
  const { seen, followed } = web;
  if (!seen.length) return html`<p class="hint">Nobody. A context that is assembled with <code>record=True</code> is noted here.</p>`;
  return html`<ul class="readers">${seen.map((reader) => {
    const next = followed.filter((each) => (each.by === reader.by || each.by === reader.agent) && compareTimes(each.at, reader.at) >= 0);
    return html`<li key=${`${reader.session} ${reader.agent} ${reader.by} ${reader.version}`}>
      <div class="reader"><${Reader} reader=${reader} /> <span class="quiet">version ${reader.version}${reader.version < observation.version ? ` of ${observation.version}` : ""}${reader.times > 1 ? `, ${count(reader.times, "time")}` : ""}</span>
        <span class="reader-when"><${Moment} at=${reader.at} /></span></div>
      ${next.length
        ? html`<ul class="next">${next.map((each) => html`<li key=${each.at + each.action}><span class="graph-action"><span aria-hidden="true">⤳</span><span class="excerpt" dir="auto"><${Text} value=${each.action} /></span></span>
            <span class="quiet">${after(reader.at, each.at)} later${each.id === observation.id ? "" : ", linked to"}</span>
            ${each.id !== observation.id && html`<${ObservationBadge} observation=${web.all.get(each.id)?.observation} id=${each.id} from=${each.page} view="story" />`}</li>`)}</ul>`
        : html`<p class="hint next">No action linked since.</p>`}</li>`;
  })}</ul>`;
}

function Reader({ reader: { session, agent, by } }) {
  if (session) return html`<a href=${link({ session }, "memory")}>session <${Text} value=${session} /></a>${agent && html` <span class="quiet">with ${visible(agent)}</span>`}`;
  return html`<strong><${Text} value=${agent ?? by} /></strong>`;
}

const after = (from, to) => duration(Math.max(0, Date.parse(to) - Date.parse(from)));
