// One fact in full: when it is true, its evidence, its predecessors and successors, and its neighbours.
import { html } from "../../lib/base.js";
import { get, pagePath, read } from "../../lib/api.js";
import { useLoad } from "../../lib/load.js";
import { go, link } from "../../lib/route.js";
import { may } from "../../lib/state.js";
import { count, Text, visible } from "../../lib/text.js";
import { isPast, positionOf, stamp } from "../../lib/time.js";
import { whole } from "../../lib/observation.js";
import { Field } from "../../ui/dialog.js";
import { ObservationBadge, Status } from "../../ui/observation.js";
import { ProblemNote } from "../../ui/problem.js";
import { Moment } from "../../ui/times.js";
import { openForm } from "./form.js";
import { Neighbours } from "./neighbours.js";
import { pageOfScope, readFacts, scopePath, wasKnown } from "./scope.js";
import { axisOf, Bar, Between, spanOf, State } from "./span.js";

const MAX_FACTS = 40; // facts of a timeline

export function Fact({ scope, id }) {
  const { data, error, reload } = useLoad((signal) => loadFact(scope, id, signal), [scope, id], { on: (event) => event.page === pageOfScope(scope) });
  const { span, events = [], evidence = [], timeline = [] } = data ?? {};
  const fact = span?.fact;
  return html`<aside class="detail fact" aria-label="Fact">
    <header><h2>Fact</h2><button type="button" class="icon" aria-label="Close" title="Close (Esc)" onClick=${() => go({ fact: null }, { replace: true })}>✕</button></header>
    <div class="detail-body" tabindex="0" role="region" aria-label="The fact">
      ${error && html`<${ProblemNote} error=${error} retry=${reload} />`}
      ${data && !span && html`<p class="hint">It was not known then. Step on with <kbd>→</kbd>, or go back to live with <kbd>l</kbd>.</p>`}
      ${span && html`<p class="fact-triplet"><strong><${Text} value=${fact.subject} /></strong> <span class="relation">${visible(fact.relation.replaceAll("_", " "))}</span> <strong><${Text} value=${fact.object} /></strong></p>
        <p class="fact-span"><${State} span=${span} /> <${Between} span=${span} /></p>
        <${Standing} span=${span} timeline=${timeline} />
        ${may("memory") && !isPast.value && !fact.retraction && html`<div class="actions"><button type="button" class="danger" title="Retract (x)" onClick=${() => retract(scope, fact)}>Retract …</button></div>`}
        <section aria-labelledby="fact-why"><h3 id="fact-why">Why</h3>
          ${fact.source_text && html`<blockquote class="fact-text" dir="auto"><${Text} value=${fact.source_text} lines /></blockquote>`}
          <ul class="fact-events">${events.map((event) => html`<li key=${positionOf(event)}>${event.kind === "fact_retracted" ? "retracted" : event.kind === "fact_asserted" ? "asserted" : visible(event.kind.replaceAll("_", " "))} by <strong><${Text} value=${event.by} /></strong>,
            <button type="button" class="moment-button" title="Go to this moment" aria-label="Go to the moment ${stamp(Date.parse(event.at), true)}" onClick=${() => go({ at: positionOf(event) })}><${Moment} at=${event.at} /></button>
            ${event.reason && html`<span class="quiet"><${Text} value=${event.reason} lines /></span>`}</li>`)}</ul>
          ${fact.confidence < 1 && html`<p class="quiet">confidence ${fact.confidence}</p>`}
          ${fact.evidence.length > 0 && html`<h3>Rests on</h3><ul class="badges">${fact.evidence.map((each) => html`<${Ground} key=${each} id=${each} observation=${evidence.find((one) => one.id === each)} />`)}</ul>`}
          ${!fact.source_text && !fact.evidence.length && html`<p class="hint">Nothing but the word of ${visible(fact.source)}: no text and no evidence were given.</p>`}</section>
        <section aria-labelledby="fact-time"><h3 id="fact-time">Timeline <small>${visible(fact.subject)} ${visible(fact.relation.replaceAll("_", " "))}: ${count(timeline.length, "fact")}</small></h3>
          <${Timeline} spans=${timeline.slice(-MAX_FACTS)} id=${id} /></section>
        <${Neighbours} scope=${scope} fact=${fact} />`}
    </div></aside>`;
}

/** Return {span, events, evidence, timeline} as they were known at the moment shown; `span` is null before the fact was asserted. */
async function loadFact(scope, id, signal) {
  const why = await get(scopePath(scope, "facts", id), {}, { signal });
  const { subject, relation } = why.fact;
  const { items: timeline } = await readFacts(scope, ["timeline"], { subject, relation }, { signal });
  const events = why.events.filter((event) => wasKnown(positionOf(event)));
  const span = timeline.find(({ fact }) => fact.id === id) ?? (events.length && !isPast.peek() ? spanOf(why.fact, why) : null);
  return { span, events, evidence: (await asTheyWere(why.evidence, signal)).map(whole), timeline };
}

/** Return observations as they were at the moment shown; those that were not there then are left out. */
async function asTheyWere(observations, signal) {
  if (!isPast.peek()) return observations;
  const then = await Promise.all(observations.map(({ page, id }) => read(pagePath(page, "observations", id), {}, { signal, silent: "" }).catch(() => null)));
  return then.filter(Boolean);
}

/** What ended or contests it. */
function Standing({ span, timeline }) {
  const of = (id) => timeline.find(({ fact }) => fact.id === id)?.fact;
  const other = (id) => html`<a key=${id} href=${link({ fact: id }, "memory")}>${of(id) ? html`<${Text} value=${of(id).object} /> <span class="quiet">(${visible(of(id).source)})</span>` : id}</a>`;
  if (span.state === "contested") return html`<p class="problem fact-contest">Sources disagree about the same moment, so none of them counts. Against it: ${span.contested_by.map((id, index) => [index ? ", " : "", other(id)])}. Retract what is wrong.</p>`;
  if (span.state === "superseded") return html`<p class="quiet">The same source corrected itself${span.ended_by ? html`: ${other(span.ended_by)}` : ""}.</p>`;
  if (span.ended_by) return html`<p class="quiet">Ended by ${other(span.ended_by)}.</p>`;
  return null;
}

/** An observation that a fact rests on, as a link to its story. */
const Ground = ({ observation, id }) => html`<li class="fact-ground"><${ObservationBadge} observation=${observation} id=${id} view="story" />${observation && html`<${Status} observation=${observation} />`}</li>`;

/** The facts about a subject and a relation on an axis of time. */
function Timeline({ spans, id }) {
  const axis = axisOf(spans);
  return html`<ol class="timeline">${spans.map((span) => html`<li key=${span.fact.id}><a class="timeline-row is-${span.state}" href=${link({ fact: span.fact.id }, "memory")} aria-current=${span.fact.id === id ? "true" : undefined}>
    <span class="timeline-object"><span class="excerpt" dir="auto"><${Text} value=${span.fact.object} /></span> <${State} span=${span} /></span>
    <${Bar} span=${span} axis=${axis} /><${Between} span=${span} /></a></li>`)}</ol>`;
}

/** Open the form that takes a fact back. */
export const retract = (scope, fact) => openForm({ title: "Retract the fact", label: "Retract", done: "Retracted; its history stays", grave: true, values: { reason: "" },
  fields: (values, set) => html`<p class="about"><strong><${Text} value=${fact.subject} /></strong> ${visible(fact.relation.replaceAll("_", " "))} <strong><${Text} value=${fact.object} /></strong></p>
    <${Field} label="Why is it not true?" hint="It stays in the history, and what it had ended is true again."><input required data-autofocus value=${values.reason} onInput=${set("reason")} /><//>`,
  send: ({ reason }) => ["POST", scopePath(scope, "facts", fact.id, "retract"), { reason }] });
