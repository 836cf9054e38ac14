// The lifecycle of an observation: its events, each with the fields that it changed.
import { html, useMemo, useState } from "../../lib/base.js";
import { groupOf } from "../../lib/kinds.js";
import { go } from "../../lib/route.js";
import { count, Text } from "../../lib/text.js";
import { duration, positionOf, stamp } from "../../lib/time.js";
import { FieldDiff } from "../../ui/diff.js";
import { Content, Tags } from "../../ui/observation.js";
import { Moment } from "../../ui/times.js";
import { LinkedText } from "../../ui/linked.js";

const REASONS = {
  reviewed: "sent to review", resolved: "resolved", archived: "archived", reopened: "reopened", changed: "changed", expired: "expired",
  auto_archived: "archived by itself", displaced: "displaced by a newcomer", refuted: "refuted",
};
const TITLES = {
  added: "added", updated: "changed", repeated: "seen again", claimed: "claimed", released: "claim released", lapsed: "claim ran out",
  linked: "led to an action", due: "fell due", cleared: "cleared from the page", erased: "erased",
};

/** Return what happened in an event, in a word or two. */
export const titleOf = (event) => (event.kind === "status_changed" ? REASONS[event.reason_code] ?? event.reason_code : TITLES[event.kind] ?? event.kind);

/** Return [{event, changes: [{name, before, after}]}] of a history; the first event changes nothing, it begins. */
export function stepsOf(events) {
  let state = null;
  return events.map((event) => {
    const before = state;
    state = evolve(state, event);
    const changes = before === null ? [] : Object.keys(state).filter((name) => JSON.stringify(before[name]) !== JSON.stringify(state[name]))
      .map((name) => ({ name, before: before[name], after: state[name] }));
    return { event, changes };
  });
}

const until = (event, before) => event.expires_at ?? (event.ttl === 0 ? null : event.ttl ? local(Date.parse(event.at) + event.ttl) : before);
const local = (ms) => stamp(ms);

function evolve(state, event) {
  const kinds = {
    added: () => ({ status: event.status, content: event.content, owner: event.owner, confidence: event.confidence, priority: event.priority, tags: event.tags ?? [],
      context: event.context ?? {}, metadata: event.metadata ?? {}, evidence: event.evidence ?? [], links: [], occurrences: event.times ?? 1, claim: null, expires: until(event, null) }),
    updated: () => ({ ...state, ...event.changes }),
    repeated: () => ({ ...state, occurrences: state.occurrences + (event.times ?? 1), evidence: [...new Set([...state.evidence, ...(event.evidence ?? [])])], expires: until(event, state.expires) }),
    status_changed: () => ({ ...state, status: event.status, expires: event.ttl === undefined ? state.expires : until(event, state.expires) }),
    claimed: () => ({ ...state, claim: `${event.holder}, for ${duration(event.ttl)}` }),
    released: () => ({ ...state, claim: null }),
    lapsed: () => ({ ...state, claim: null }),
    linked: () => ({ ...state, links: [...new Set([...state.links, event.action])] }),
  };
  return (state || event.kind === "added" ? kinds[event.kind]?.() : null) ?? state ?? {};
}

export function Life({ events }) {
  const steps = useMemo(() => stepsOf(events), [events]);
  return html`<ol class="life">${steps.map((step) => html`<${Step} key=${positionOf(step.event)} ...${step} />`)}</ol>`;
}

function Step({ event, changes }) {
  const [isRaw, setRaw] = useState(false);
  const position = positionOf(event);
  return html`<li class="life-step kind-${groupOf(event.kind)} ${event.reason_code === "refuted" ? "is-refuted" : ""}">
    <div class="life-head"><strong>${titleOf(event)}</strong> <span class="quiet">by</span> <span class="life-by"><${Text} value=${event.by} /></span>
      <span class="life-end"><button type="button" class="moment-button quiet" aria-expanded=${isRaw} aria-label="The event as JSON" title="The event as JSON" onClick=${() => setRaw(!isRaw)}>{ }</button>
      <button type="button" class="moment-button" title="Go to this moment" aria-label="Go to the moment ${stamp(Date.parse(event.at), true)}" onClick=${() => go({ at: position })}><${Moment} at=${event.at} precise /></button></span></div>
    ${event.kind === "added" && html`<${Beginning} event=${event} />`}
    ${event.reason && html`<p class="life-reason" dir="auto"><${LinkedText} value=${event.reason} /></p>`}
    ${changes.length > 0 && html`<dl class="field-diffs">${changes.map((each) => html`<${FieldDiff} key=${each.name} ...${each} />`)}</dl>`}
    ${event.cause && html`<p class="hint">caused by <button type="button" class="text-button" onClick=${() => go({ q: event.cause, at: null }, { view: "log" })}>the event at ${event.cause}</button></p>`}
    ${isRaw && html`<pre tabindex="0" class="life-raw" aria-label="The event as JSON"><${Text} value=${JSON.stringify(event, null, 2)} lines /></pre>`}
  </li>`;
}

function Beginning({ event }) {
  const facts = [`confidence ${event.confidence}`, `priority ${event.priority}`, event.owner && `for ${event.owner}`, event.ttl && `for ${duration(event.ttl)}`, event.times > 1 && count(event.times, "time")];
  return html`<${Content} tag="p" className="life-content" value=${event.content} />
    <p class="hint life-facts"><span><${Text} value=${facts.filter(Boolean).join(" · ")} /></span> <${Tags} tags=${event.tags ?? []} /></p>`;
}
