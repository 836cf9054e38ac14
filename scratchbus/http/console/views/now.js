// Now: the page, by priority, live or at the moment shown.
import { html, useMemo, useRef } from "../lib/base.js";
import { get } from "../lib/api.js";
import { useKeys } from "../lib/keys.js";
import { useLoad } from "../lib/load.js";
import { allStatuses } from "../lib/observation.js";
import { fits, parseQuery, toggleTerm } from "../lib/query.js";
import { go, param } from "../lib/route.js";
import { arePagesLoaded, may, page, pages, selected, typeNames } from "../lib/state.js";
import { count, countShown, Text, visible } from "../lib/text.js";
import { isPast } from "../lib/time.js";
import { narrow } from "../lib/screen.js";
import { addObservation, keysOfActions } from "../ui/actions.js";
import { Detail } from "../ui/detail.js";
import { Filter, setFilter } from "../ui/filter.js";
import { choosePage } from "../ui/pagepicker.js";
import { Priority, Status, Tags, Type } from "../ui/observation.js";
import { Empty, Loading, ProblemNote } from "../ui/problem.js";
import { Table } from "../ui/table.js";
import { Age, Countdown } from "../ui/times.js";
import { usePage } from "./now/page.js";

const NAMES = ["type", "tag", "owner", "source", "status", "claim", "id"];
const query = param("q");

const valuesOf = (observation) => (name) =>
  ({
    type: [observation.type], tag: observation.tags, owner: [observation.owner ?? "nobody"], source: [observation.source],
    status: [observation.status], claim: [observation.claim?.by ?? "nobody"], id: [observation.id],
    text: [observation.content.toLowerCase(), observation.id.toLowerCase(), ...observation.tags.map((tag) => tag.toLowerCase())],
  })[name];

export default function Now() {
  const terms = useMemo(() => parseQuery(query.value, NAMES), [query.value]);
  const wanted = terms.filter(isStatus).map(({ value }) => value);
  const { rows, error, loaded, progress, more, reload, away } = usePage(page.value, wanted);
  const shown = useMemo(() => rows.filter((each) => fits(narrowed(terms), valuesOf(each))), [rows, terms]);
  const table = useRef(null);
  const observation = rows.find((each) => each.id === selected.value);
  const select = (row) => go({ selected: row.id === selected.peek() ? null : row.id });

  useKeys([
    { keys: "j", group: "This view", label: "Next row", run: () => table.current?.move(1) },
    { keys: "k", group: "This view", label: "Row before", run: () => table.current?.move(-1) },
    { keys: "Escape", group: "This view", label: "Close the selected observation", when: () => selected.peek() !== "", run: () => (go({ selected: null }), table.current?.focus()) },
    { keys: "a", group: "Act", label: "Add an observation", when: () => may("publish") && !isPast.peek(), run: () => addObservation() },
    { keys: "m", group: "This view", label: "Mark all as seen", when: () => away.count > 0, run: away.clear },
  ], [away.count]);
  useKeys(keysOfActions(() => table.current?.current() ?? observation), [observation]);

  return html`<div class="now ${selected.value ? "with-detail" : ""}">
    <section class="now-list" aria-label="Observations">
      <div class="toolbar">
        <${Filter} value=${query.value} onValue=${setFilter} names=${NAMES} placeholder="Filter: words, type:, tag:, owner:, source:, status:"
          suggest=${(name) => (name === "status" ? ["open", ...allStatuses(), "all"] : [...new Set(rows.flatMap((each) => valuesOf(each)(name)))].sort())} />
        <span class="toolbar-count" role="status">${loaded ? countShown(shown.length, rows.length, "observation", more) : !error && html`<${Loading} progress=${progress && count(progress, "observation")} />`}</span>
        <label class="check now-closed"><input type="checkbox" checked=${showsClosed(terms)} onChange=${toggleClosed} /> Also closed ones</label>
        ${may("publish") && html`<button type="button" class="primary" title="Add an observation (a)" disabled=${isPast.value}
          onClick=${() => addObservation()}>Add</button>`}
      </div>
      <${Chips} rows=${rows} loaded=${loaded} />
      ${away.count > 0 && html`<div class="away" role="status"><span>${away.text} since you looked away</span>
        <button type="button" title="Mark all as seen (m)" onClick=${away.clear}>Mark as seen</button></div>`}
      ${error && html`<${ProblemNote} error=${error} retry=${reload} />`}
      ${shown.length > 0 || (!loaded && !error)
        ? html`<${Table} label="Observations by priority" className="now-table" rows=${shown} keyOf=${(row) => row.id} columns=${COLUMNS}
            rowHeight=${narrow.value ? 62 : 34} selected=${selected.value} onSelect=${select} control=${table}
            rowClass=${(row) => `${row.status_class} ${away.has(row.id) ? "changed" : ""}`} />`
        : !error && html`<${Nothing} total=${rows.length} />`}
    </section>
    ${selected.value && html`<${Detail} key=${selected.value} id=${selected.value} known=${observation}
      onClose=${() => (go({ selected: null }), table.current?.focus())} />`}
  </div>`;
}

const isStatus = ({ name, not }) => name === "status" && !not;
const hasStatus = (terms, ...values) => terms.some((each) => isStatus(each) && values.includes(each.value));

/** Return the terms that rows have to fit: with `open` or `all`, the rows that were loaded have the right statuses already. */
const narrowed = (terms) => (hasStatus(terms, "open", "all") ? terms.filter((each) => !isStatus(each)) : terms);

const showsClosed = (terms) => hasStatus(terms, "all");
const toggleClosed = () => setFilter(toggleTerm(query.peek(), "status", "all"));

const filterBy = (name) => (value) => setFilter(toggleTerm(query.peek(), name, value));

/** Types as buttons that filter, each with its number of rows once all are loaded. */
function Chips({ rows, loaded }) {
  const counts = new Map();
  for (const { type, priority } of rows) counts.set(type, { priority, count: (counts.get(type)?.count ?? 0) + 1 });
  if (counts.size < (loaded ? 2 : 1)) return null; // the rest of a long page probably has other types
  const active = parseQuery(query.value, NAMES).filter(({ name, not }) => name === "type" && !not).map(({ value }) => value);
  return html`<div class="chips" role="group" aria-label="Filter by type">${[...counts].sort(([, a], [, b]) => b.priority - a.priority).map(([type, each]) => html`
    <button key=${type} type="button" class="chip" aria-pressed=${active.includes(type)} onClick=${() => filterBy("type")(type)}>
      ${visible(type)} <span class="number">${loaded ? each.count.toLocaleString("en") : "…"}</span></button>`)}</div>`;
}

const COLUMNS = [
  { name: "priority", title: "Priority", cell: (row) => html`<${Priority} value=${row.priority} />` },
  { name: "type", title: "Type", cell: (row) => html`<${Type} name=${row.type} />${narrow.value && row.status !== "active" && html`<${Status} observation=${row} />`}` },
  {
    name: "content", title: "Content", cell: (row) => html`
      ${!narrow.value && row.status !== "active" && html`<${Status} observation=${row} />`}
      <span class="excerpt" dir="auto"><${Text} value=${row.content} /></span>
      ${row.tags.length > 0 && html`<span class="tags"><${Tags} tags=${row.tags.slice(0, 3)} />${row.tags.length > 3 && html`<span class="tag">+${row.tags.length - 3}</span>`}</span>`}`,
  },
  { name: "source", title: "Source", cell: (row) => html`<span class="excerpt" dir="auto"><${Text} value=${row.source} /></span>` },
  { name: "claim", title: "Claim", cell: (row) => row.claim && html`<span class="claim" title="Claimed by ${visible(row.claim.by)}">
      <span class="excerpt" dir="auto"><${Text} value=${row.claim.by} /></span> <${Countdown} until=${row.claim.until} soon=${15_000} /></span>` },
  { name: "counts", title: "Seen", cell: (row) => html`
      ${row.occurrences > 1 && html`<span class="number" title=${`seen ${count(row.occurrences, "time")}`}>×${row.occurrences}</span>`}
      ${row.links.length > 0 && html`<span class="number" title=${count(row.links.length, "linked action")}>⤳${row.links.length}</span>`}` },
  { name: "expires", title: "Expires", cell: (row) => row.expires_at && row.status_class === "open" ? html`<${Countdown} until=${row.expires_at} soon=${300_000} />` : "" },
  { name: "age", title: "Age", cell: (row) => html`<${Age} at=${row.created_at} />` },
];

/** Return options of the command line, those without a value left out. */
const optionsOf = (values) => Object.entries(values).map(([name, value]) => (value ? ` --${name} ${/^[\w@%+=:,./-]+$/.test(value) ? value : `'${value.replaceAll("'", "'\\''")}'`}` : "")).join("");

/** What to do on a page without rows. */
function Nothing({ total }) {
  const { data: status, error } = useLoad((signal) => get("/status", {}, { signal }), [], { isTimeless: true });
  if (total > 0 || query.value) {
    return html`<${Empty} title="Nothing fits the filter">
      <p>${total ? `${count(total, "observation")} on this page do not.` : "Closed observations are shown with status:all."}</p>
      <p><button type="button" onClick=${() => setFilter("")}>Clear the filter</button> <button type="button" onClick=${() => setFilter("status:all")}>Show closed ones too</button></p><//>`;
  }
  if (isPast.value) {
    return html`<${Empty} title="The page was empty then"><p>Step on with <kbd>→</kbd>, or go back to live with <kbd>l</kbd>.</p><//>`;
  }
  const options = optionsOf({ page: page.value === "main" ? "" : page.value, bus: status?.bus === "scratchbus" ? "" : status?.bus, url: status?.url.includes("***") ? "" : status?.url });
  const hasCommands = status ? !status.url.startsWith("memory:") : error !== null; // a bus in memory has no other process
  const isNew = page.value !== "main" && arePagesLoaded.value && !pages.value.some(({ name }) => name === page.value);
  const areOthersOpen = pages.value.some(({ name, open }) => open > 0 && name !== page.value);
  return html`<${Empty} title=${isNew ? `No page is called ${visible(page.value)} yet` : `Nothing is open on the page ${visible(page.value)}`}>
    <p>${isNew ? "It begins with its first observation." : "What daemons and agents add appears here by itself, the most urgent first."}</p>
    ${may("publish") && html`<p><button type="button" class="primary" onClick=${() => addObservation()}>Add an observation</button></p>`}
    ${hasCommands && html`<p>From a shell:</p><pre><${Text} value=${`scratchbus add ${typeNames.value[0] ?? "observation"} "Someone should look at this" --source me${options}`} /></pre>`}
    <p>${(isNew || areOthersOpen) && html`<button type="button" onClick=${choosePage}>Choose another page</button>`} ${!isNew && html`<button type="button" onClick=${() => setFilter("status:all")}>Show closed ones</button>`}</p><//>`;
}
