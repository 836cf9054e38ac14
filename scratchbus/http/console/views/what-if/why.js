// Why an observation is missing or different without some sources.
import { html } from "../../lib/base.js";
import { pagePath, read } from "../../lib/api.js";
import { useLoad } from "../../lib/load.js";
import { page } from "../../lib/state.js";
import { positionOf } from "../../lib/time.js";
import { Text, visible } from "../../lib/text.js";
import { ObservationBadge } from "../../ui/observation.js";
import { Moment } from "../../ui/times.js";
import { titleOf } from "../story/life.js";

const MAX_CAUSES = 4;

/** `row` is one that differs, `rows` a Map of all of them by id, `silent` the sources that are off. */
export function Why({ row, rows, silent, at }) {
  const known = row.kind === "gone" ? knownReason(row, rows, silent) : null;
  return known ?? html`<${Searched} row=${row} silent=${silent} at=${at} />`;
}

function knownReason({ actual }, rows, silent) {
  if (silent.includes(actual.source)) return html`<span class="why">said by <strong><${Text} value=${actual.source} /></strong></span>`;
  const below = actual.evidence.map((id) => rows.get(id)).find((each) => each?.kind === "gone");
  return below && html`<span class="why">rests on <${ObservationBadge} observation=${below.actual} view="story" /></span>`;
}

/** The events that do not happen without the sources: those of its history that are only in the one with them. */
function Searched({ row, silent, at }) {
  const { data } = useLoad(async (signal) => {
    const history = (off) => read(pagePath(page.value, "observations", row.id, "history"), {}, { at, silent: off, signal });
    const [all, left] = await Promise.all([history(""), row.kind === "gone" ? { items: [] } : history(silent.join())]);
    const kept = new Set(left.items.map(positionOf));
    return all.items.filter((event) => !kept.has(positionOf(event)));
  }, [row.id, silent.join(), at]);
  if (!data) return html`<span class="why quiet">…</span>`;
  if (row.kind === "gone") return html`<${Gone} event=${data[0]} row=${row} silent=${silent} />`;
  if (!data.length) return html`<span class="why quiet">what it rests on is another</span>`;
  return html`<span class="why">without: ${data.slice(0, MAX_CAUSES).map((event, index) => html`${index > 0 && ", "}<span key=${event.id}>${titleOf(event)} by ${visible(event.by)}, <${Moment} at=${event.at} /></span>`)}${data.length > MAX_CAUSES && `, and ${data.length - MAX_CAUSES} more`}</span>`;
}

function Gone({ event, row, silent }) {
  if (!event) return html`<span class="why quiet">it rests on what is gone</span>`;
  if (silent.includes(event.by)) return html`<span class="why">added by <strong>${visible(event.by)}</strong> for ${visible(row.actual.source)}</span>`;
  const below = row.actual.evidence[0];
  if (below) return html`<span class="why">rests on <${ObservationBadge} id=${below} view="story" /></span>`;
  if (event.cause) return html`<span class="why">caused by the event at <code>${event.cause}</code>, which did not happen</span>`;
  return html`<span class="why quiet">it made way for what is gone</span>`;
}
