// The actions on an observation: one table, shown as buttons, menu items and shortcuts to those who may use them.
import { html, useEffect, useState } from "../lib/base.js";
import { get, pagePath, Problem, write } from "../lib/api.js";
import { changedFields, mayBecome, whole } from "../lib/observation.js";
import { caller, may, page, typeNames, types } from "../lib/state.js";
import { count, Text, visible } from "../lib/text.js";
import { isPast } from "../lib/time.js";
import { Dialog, Field, openDialog, useKeyOf } from "./dialog.js";
import { ObservationBadge, Status } from "./observation.js";
import { FormProblem, messageOf } from "./problem.js";
import { Moment } from "./times.js";
import { toast } from "./toast.js";

const isOpen = ({ status_class }) => status_class === "open";
const isFinal = ({ status_class }) => status_class === "final";
const isMine = ({ claim }) => claim && claim.by === caller.value?.source;

/**
 * Each action: its name in the API, its label, the key, what is said when it is done, whether an observation allows it,
 * and the fields of its form. `guarded` ones are refused when the observation has moved on.
 */
export const ACTIONS = [
  { name: "resolve", label: "Resolve", key: "e", done: "Resolved", fits: (it) => isOpen(it) && mayBecome(it, "resolved"), fields: ["reason"], guarded: true },
  { name: "review", label: "Send to review", key: "r", done: "Sent to review", fits: (it) => it.status !== "pending_review" && !isFinal(it) && mayBecome(it, "pending_review"), fields: ["reason"], guarded: true },
  { name: "reopen", label: "Reopen", key: "o", done: "Reopened", fits: (it) => it.status !== "active" && !isFinal(it) && mayBecome(it, "active"), fields: ["reason", "ttl"], guarded: true },
  { name: "claim", label: "Claim", key: "h", done: "Claimed", fits: (it) => isOpen(it) && !it.claim, fields: ["claimTtl"] },
  { name: "claim", variant: "renew", label: "Renew the claim", key: "h", done: "Renewed", fits: (it) => isOpen(it) && isMine(it) && fenceOf(it), fields: ["claimTtl"] },
  { name: "release", label: "Release the claim", key: "u", done: "Released", fits: (it) => isMine(it), fields: [] },
  { name: "link", label: "Link an action", key: "n", done: "Linked", fits: (it) => !isFinal(it), fields: ["action"] },
  { name: "archive", label: "Archive", key: "d", done: "Archived", fits: (it) => !isFinal(it) && mayBecome(it, "archived"), fields: ["reason"], guarded: true },
  { name: "refute", label: "Refute", key: "x", done: "Refuted", fits: (it) => !isFinal(it), fields: ["because"], grave: true },
];

/** Return the actions that an observation and the caller allow right now. */
export const actionsFor = (observation) =>
  observation && may("act") && !isPast.value ? ACTIONS.filter((each) => each.fits(observation)) : [];

/** Return the shortcuts of the actions, for the observation that `current()` returns. */
export const keysOfActions = (current) =>
  [...Map.groupBy(ACTIONS, ({ key }) => key)].map(([key, [first]]) => {
    const found = () => actionsFor(current()).find((each) => each.key === key);
    return { keys: key, group: "Act", label: first.label, repeat: false, when: () => found() !== undefined, run: () => act(found(), current()) };
  });

/** Open the form of an action. */
export const act = (action, observation) =>
  openDialog((close) => html`<${ActionForm} key=${`${action.name} ${observation.id}`} action=${action} observation=${observation} onClose=${close} />`);

/** Open the form that adds an observation; `given` fills it in. */
export const addObservation = (given = {}) => openDialog((close) => html`<${AddForm} given=${given} onClose=${close} />`);

// The fence of one's own claims: it came with the answer, and later writes need it. It lasts as long as the tab.
const fenceKey = ({ page, id }) => `fence ${page} ${id}`;
const fenceOf = (observation) => {
  const kept = Number(sessionStorage.getItem(fenceKey(observation)));
  return observation.claim && kept === observation.claim.fence ? kept : undefined;
};

const FIELDS = {
  reason: ({ values, set }) => html`<${Field} label="Reason" hint="Optional; it stays in the history."><input value=${values.reason ?? ""} onInput=${set("reason")} /><//>`,
  because: ({ values, set }) => html`<${Field} label="Why is it not true?" hint="Everyone who looks at its history reads this."><input required value=${values.reason ?? ""} onInput=${set("reason")} /><//>`,
  ttl: ({ values, set }) => html`<${Field} label="Open for" hint="Such as 30m, 2h, 7d or never; left empty, as long as before."><input value=${values.ttl ?? ""} onInput=${set("ttl")} /><//>`,
  claimTtl: ({ values, set }) => html`<${Field} label="For how long" hint="Such as 30s, 10m or 2h. Then others may claim it."><input required value=${values.ttl ?? "10m"} onInput=${set("ttl")} /><//>`,
  action: ({ values, set }) => html`<${Field} label="Action taken because of it" hint="A name of yours, such as ticket-17 or call:42."><input required value=${values.action ?? ""} onInput=${set("action")} /><//>`,
};

function ActionForm({ action, observation: first, onClose }) {
  const [observation, setObservation] = useState(first);
  const [values, setValues] = useState(action.fields.includes("claimTtl") ? { ttl: "10m" } : {});
  const [state, setState] = useState({ busy: false, error: null, moved: null });
  const [checked, setChecked] = useState(!action.grave);
  const key = useKeyOf({ values, version: observation.version });
  const set = (name) => (event) => setValues({ ...values, [name]: event.target.value });

  const submit = async () => {
    setState({ busy: true, error: null, moved: null });
    try {
      const given = Object.fromEntries(Object.entries(values).filter(([, value]) => value !== ""));
      const fence = action.name === "claim" && action.variant !== "renew" ? undefined : fenceOf(observation);
      const answer = await write("POST", pagePath(observation.page, "observations", observation.id, action.name), { ...given, ...(fence && { fence }) },
        { version: action.guarded ? observation.version : undefined, key: key() });
      if (action.name === "claim") sessionStorage.setItem(fenceKey(observation), answer.fence);
      if (action.name === "release") sessionStorage.removeItem(fenceKey(observation));
      onClose();
      toast(`${action.done}: ${visible(observation.content).slice(0, 60)}`);
    } catch (error) {
      setState({ busy: false, error, moved: await movedOn(error, observation) });
    }
  };
  const goOn = () => (setObservation(state.moved.now), setState({ busy: false, error: null, moved: null }));
  const stillFits = state.moved ? action.fits(state.moved.now) : true;

  const button = state.moved
    ? stillFits && html`<button key="on" type="button" class="primary" onClick=${goOn}>Go on with version ${state.moved.now.version}</button>`
    : html`<button key="send" type="submit" class=${action.grave ? "danger" : "primary"} disabled=${state.busy || !checked}>${action.label}</button>`;
  return html`<${Dialog} title=${action.label} onClose=${onClose} onSubmit=${submit} wide=${action.grave}
    actions=${html`<button type="button" onClick=${onClose}>Cancel</button>${button}`}>
    <p class="about"><${ObservationBadge} observation=${observation} /></p>
    ${action.grave && html`<${Ground} observation=${observation} onChecked=${() => setChecked(true)} />`}
    ${action.fields.map((name) => html`<${FIELDS[name]} key=${name} values=${values} set=${set} />`)}
    ${state.error && html`<${Refused} error=${state.error} moved=${state.moved} before=${observation} fits=${stillFits} label=${action.label} />`}
  <//>`;
}

/** Return what the observation is now, when that is why a write was refused. */
async function movedOn(error, observation) {
  if (!(error instanceof Problem) || ![404, 409, 412].includes(error.status)) return null;
  try {
    const now = whole(await get(pagePath(observation.page, "observations", observation.id)));
    return now.version === observation.version ? null : { now };
  } catch {
    return null;
  }
}

/** Why a write was refused, and how one can go on. */
function Refused({ error, moved, before, fits, label }) {
  if (!moved) return html`<${FormProblem} error=${error} />`;
  const { now } = moved;
  return html`<div class="problem" role="alert"><p><strong>Someone was faster.</strong> You saw version ${before.version}; it is at version ${now.version} now.</p>
    <dl class="fields">${changedFields(before, now).map((name) => html`<div key=${name}><dt>${name}</dt>
      <dd><del>${shown(before[name])}</del> <ins>${shown(now[name])}</ins></dd></div>`)}</dl>
    ${!fits && html`<p>“${label}” is not possible any longer: it is ${html`<${Status} observation=${now} />`}${now.claim ? `, claimed by ${visible(now.claim.by)}` : ""}.</p>`}</div>`;
}

const shown = (value) => (value === null || value === "" ? "nothing" : visible(typeof value === "string" ? value : value.by ?? JSON.stringify(value)));

/** What rests on an observation, and who saw it: to be read before it is refuted. */
function Ground({ observation, onChecked }) {
  const [found, setFound] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    const of = (name) => get(pagePath(observation.page, "observations", observation.id, name));
    Promise.all([of("consequences"), of("exposure")]).then(setFound, setError).finally(onChecked);
  }, []);
  if (error) return html`<p class="problem"><${Text} value=${`What rests on it could not be loaded: ${messageOf(error)}`} /></p>`;
  if (!found) return html`<p class="hint" role="status">Looking for what rests on it …</p>`;
  const [{ observations, actions }, { seen, actions: followed }] = found;
  const resting = Object.values(observations).filter((each) => each.id !== observation.id).map(whole);
  const open = resting.filter(isOpen);
  return html`<div class="ground">
    <section><h3>${resting.length ? `${count(resting.length, "observation rests", "observations rest")} on it` : "Nothing rests on it"}</h3>
      ${open.length > 0 && html`<p>${count(open.length, "open one goes", "open ones go")} to review.</p>`}
      <ul>${resting.map((each) => html`<li key=${each.id}><${ObservationBadge} observation=${each} /> <${Status} observation=${each} /></li>`)}</ul></section>
    <section><h3>${seen.length ? `${count(new Set(seen.map(viewer)).size, "reader")} had it in a prompt` : "Nobody had it in a prompt"}</h3>
      <ul>${seen.map((each) => html`<li key=${viewer(each) + each.version}>${visible(viewer(each))}, version ${each.version}, <${Moment} at=${each.at} /></li>`)}</ul></section>
    ${actions.length + followed.length > 0 && html`<section><h3>${count(new Set([...actions, ...followed.map((each) => each.action)]).size, "action")} followed</h3>
      <ul>${[...new Set([...actions, ...followed.map((each) => each.action)])].map((each) => html`<li key=${each}><${Text} value=${each} /></li>`)}</ul></section>`}
  </div>`;
}

const viewer = ({ session, agent, by }) => (session ? `session ${session}` : agent ? `agent ${agent}` : by);

function AddForm({ given, onClose }) {
  const names = typeNames.value;
  const [values, setValues] = useState({ type: names.includes("observation") ? "observation" : names[0] ?? "", ...given });
  const [state, setState] = useState({ busy: false, error: null });
  const key = useKeyOf({ values, page: page.value });
  const set = (name) => (event) => setValues({ ...values, [name]: event.target.value });
  const submit = async () => {
    const context = parsed(values.context);
    if (context instanceof Error) return setState({ busy: false, error: context });
    setState({ busy: true, error: null });
    const text = (name) => (values[name]?.trim() ? { [name]: values[name].trim() } : {});
    const list = (name) => (values[name]?.trim() ? { [name]: values[name].split(/[\s,]+/).filter(Boolean) } : {});
    const body = { type: values.type, content: values.content ?? "", ...text("owner"), ...text("source"), ...text("ttl"), ...list("tags"), ...list("evidence"),
      ...(values.confidence ? { confidence: Number(values.confidence) } : {}), ...(context ? { context } : {}) };
    try {
      const added = await write("POST", pagePath(page.value, "observations"), body, { key: key() });
      onClose();
      toast(added.displaced?.length ? `Added; the page was full, so ${count(added.displaced.length, "observation")} had to leave it` : "Added");
    } catch (error) {
      setState({ busy: false, error });
    }
    return undefined;
  };
  const wrong = (name) => (state.error?.extra?.field === name ? state.error.detail : undefined);
  return html`<${Dialog} title=${`Add an observation to ${visible(page.value)}`} onClose=${onClose} onSubmit=${submit} wide
    actions=${html`<button type="button" onClick=${onClose}>Cancel</button><button type="submit" class="primary" disabled=${state.busy}>Add</button>`}>
    <${Field} label="Type" hint=${types.value[values.type]?.description} error=${wrong("type")}><select value=${values.type} onChange=${set("type")}>
      ${names.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select><//>
    <${Field} label="Content" error=${wrong("content")}><textarea rows="3" required data-autofocus value=${values.content ?? ""} onInput=${set("content")}></textarea><//>
    <div class="field-row">
      <${Field} label="Tags" hint="With spaces between" error=${wrong("tags")}><input value=${values.tags ?? ""} onInput=${set("tags")} /><//>
      <${Field} label="Owner" hint="Who should act on it" error=${wrong("owner")}><input value=${values.owner ?? ""} onInput=${set("owner")} /><//>
    </div>
    <div class="field-row">
      <${Field} label="Confidence" hint="0 to 1; left empty, 1" error=${wrong("confidence")}><input type="number" min="0" max="1" step="any" value=${values.confidence ?? ""} onInput=${set("confidence")} /><//>
      <${Field} label="Lives for" hint="Such as 30m, 2h, 7d or never" error=${wrong("ttl")}><input value=${values.ttl ?? ""} onInput=${set("ttl")} /><//>
    </div>
    <details open=${Boolean(values.evidence)}><summary>More</summary>
      <${Field} label="Evidence" hint="Ids of observations that it rests on" error=${wrong("evidence")}><input value=${values.evidence ?? ""} onInput=${set("evidence")} /><//>
      <${Field} label="Context" hint="A JSON object" error=${state.error instanceof SyntaxError ? "This is not a JSON object." : wrong("context")}><textarea rows="2" spellcheck="false" value=${values.context ?? ""} onInput=${set("context")}></textarea><//>
      ${caller.value?.may_name_source && html`<${Field} label="Source" hint=${`Left empty, ${caller.value.source}`} error=${wrong("source")}><input value=${values.source ?? ""} onInput=${set("source")} /><//>`}
    </details>
    ${state.error && !state.error.extra?.field && !(state.error instanceof SyntaxError) && html`<${Refused} error=${state.error} />`}
  <//>`;
}

function parsed(text) {
  if (!text?.trim()) return null;
  try {
    const value = JSON.parse(text);
    return typeof value === "object" && !Array.isArray(value) ? value : new SyntaxError("not an object");
  } catch (error) {
    return error;
  }
}
