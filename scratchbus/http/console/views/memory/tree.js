// The scopes, the tree of sessions, and the agents.
import { html, useMemo, useState } from "../../lib/base.js";
import { link, route } from "../../lib/route.js";
import { count, Text, visible } from "../../lib/text.js";
import { compareTimes } from "../../lib/time.js";
import { Age } from "../../ui/times.js";

const MANY = 8;
const STEP = 200; // names shown at first, and with each "Show more": each has an age that counts

export function Tree({ sessions, agents, scopes, chosen }) {
  const [wanted, setWanted] = useState("");
  const fits = (name) => name.toLowerCase().includes(wanted.trim().toLowerCase());
  const roots = useMemo(() => rootsOf(sessions, fits), [sessions, wanted]);
  const [shownScopes, shownAgents] = [scopes.filter(fits), agents.filter(fits)];
  return html`<section class="memory-tree" aria-label="Scopes, sessions and agents">
    ${sessions.length + agents.length + scopes.length > MANY && html`<input type="search" aria-label="Find a scope, a session or an agent" placeholder="Find" value=${wanted} onInput=${(event) => setWanted(event.target.value)} />`}
    ${shownScopes.length > 0 && html`<${Names} title="Scopes" kind="scope" names=${shownScopes} chosen=${chosen} />`}
    <h2>Sessions</h2>
    ${roots.length ? html`<${Some} of=${roots} what="session" isChosen=${(each) => holds(each, chosen)} one=${(each) => html`<${Branch} key=${each.id} node=${each} chosen=${chosen} />`} />` : html`<p class="hint">${wanted ? "No name matches." : "None yet."}</p>`}
    ${shownAgents.length > 0 && html`<${Names} title="Agents" kind="agent" names=${shownAgents} chosen=${chosen} />`}
  </section>`;
}

/** What belongs to one memory, and not to the next that is chosen. */
export const NONE = { scope: null, session: null, agent: null, tab: null, fact: null, entity: null, q: null, find: null, tag: null, v: null, vs: null, in: null, valid: null, depth: null };

const Names = ({ title, kind, names, chosen }) => html`<h2>${title}</h2><${Some} of=${names} what=${kind} isChosen=${(name) => chosen === `${kind} ${name}`} one=${(name) => html`<li key=${name}>
  <a class="tree-link" href=${link({ ...NONE, [kind]: name }, "memory")} title=${visible(name)} aria-current=${chosen === `${kind} ${name}` ? "true" : undefined}><span class="excerpt" dir="auto"><${Text} value=${name} /></span></a></li>`} />`;

/** The first entries of a long list, and the chosen one; a button shows more. */
function Some({ of, what, isChosen, one }) {
  const [most, setMost] = useState(STEP);
  return html`<ul>${of.filter((each, index) => index < most || isChosen(each)).map(one)}</ul>
    ${of.length > most && html`<p class="tree-more"><button type="button" class="small" onClick=${() => setMost(most + STEP)}>Show more</button> <span class="quiet">${most.toLocaleString("en")} of ${count(of.length, what)}</span></p>`}`;
}

/** Return whether a session, or one below it, is the chosen one. */
const holds = (node, chosen) => chosen === `session ${node.id}` || node.below.some((each) => holds(each, chosen));

function Branch({ node, chosen }) {
  return html`<li><a class="tree-link ${node.ended ? "ended" : ""}" href=${link({ ...NONE, session: node.id, tab: route.value.params.session ? route.value.params.tab : null }, "memory")} title=${visible(node.id)} aria-current=${chosen === `session ${node.id}` ? "true" : undefined}>
      <span class="excerpt" dir="auto"><${Text} value=${node.id} /></span>${node.fork && html` <small title="It began with all that its parent knew">fork</small>`}${node.ended && html` <small>ended</small>`}
      ${node.updated_at && html`<small class="tree-age"><${Age} at=${node.updated_at} /></small>`}</a>
    ${node.below.length > 0 && html`<${Some} of=${node.below} what="session" isChosen=${(each) => holds(each, chosen)} one=${(each) => html`<${Branch} key=${each.id} node=${each} chosen=${chosen} />`} />`}</li>`;
}

/** Return the sessions as a tree, those that changed last first; one whose parent is not there is a root. */
function rootsOf(sessions, fits) {
  const nodes = new Map(sessions.map((each) => [each.id, { ...each, below: [] }]));
  const roots = [];
  for (const node of nodes.values()) (nodes.get(node.parent)?.below ?? roots).push(node);
  const newest = (a, b) => compareTimes(b.updated_at ?? "", a.updated_at ?? "");
  const kept = (node) => ((node.below = node.below.filter(kept).sort(newest)), node.below.length > 0 || fits(node.id));
  return roots.filter(kept).sort(newest);
}
