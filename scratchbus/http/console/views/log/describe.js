// One-line descriptions of events.
import { duration } from "../../lib/time.js";
import { count, shortIds } from "../../lib/text.js";

const joined = (...parts) => parts.filter(Boolean).join(" · ");
const named = (changes) => Object.entries(changes).map(([name, value]) => `${name} → ${typeof value === "string" ? value : JSON.stringify(value)}`).join(", ");
const todo = (items) => items.map(({ status, content }) => `${content} (${status.replaceAll("_", " ")})`).join(" · ");
const status = (it) => (it.reason_code === it.status ? "" : `${it.reason_code.replaceAll("_", " ")} `) + `→ ${it.status.replaceAll("_", " ")}`;

const LINES = {
  added: (it) => it.content,
  updated: (it) => named(it.changes ?? {}),
  repeated: (it) => `seen ${count(it.times ?? 1, "more time")}`,
  status_changed: (it) => joined(status(it), shortIds(it.reason ?? "")),
  claimed: (it) => `by ${it.holder} for ${duration(it.ttl)}`,
  released: (it) => it.reason || "the claim was given back",
  lapsed: () => "the claim ran out",
  linked: (it) => it.action,
  due: () => "fell due",
  cleared: () => "off the page; its history stays",
  erased: (it) => joined(it.reason, count(it.positions?.length ?? 0, "event")),
  types_changed: () => "the observation types",
  relations_changed: () => "the relations of facts",
  context_rendered: (it) => joined(it.session && `session ${it.session}`, it.agent && `agent ${it.agent}`, count(Object.keys(it.observations ?? {}).length, "observation"), count(it.tokens ?? 0, "token")),
  notepad_edited: (it) => `${it.operation.replaceAll("_", " ")}: ${it.find ? `${it.find} → ${it.replace}` : it.content}`,
  note_updated: (it) => joined(it.content, it.tags && `tags: ${it.tags.join(", ") || "none"}`),
  note_deleted: () => "its history stays",
  session_spawned: (it) => `${it.fork ? "forked to" : "began"} ${it.session}`,
  session_started: (it) => `from ${it.parent}`,
  session_ended: () => "all that was remembered in it is archived",
  todo_written: (it) => todo(it.todos ?? []) || "emptied",
  task_ended: (it) => it.summary,
  scratchpad_written: () => "shown to its agent alone",
  run_ended: (it) => joined(it.outcome, it.task),
  preference_remembered: (it) => `${it.key}: ${it.text}`,
  preference_forgotten: () => "its history stays",
  fact_asserted: (it) => `${it.about} → ${it.relation.replaceAll("_", " ")} → ${it.object}`,
  turn_appended: (it) => `${it.role}: ${it.content}`,
  turns_compacted: (it) => `instead of ${count(it.turns?.length ?? 0, "turn")}: ${it.content}`,
  file_written: (it) => `${it.path}, ${count(it.size ?? 0, "byte")}`,
  file_removed: (it) => `${it.path}: ${it.why ?? "deleted"}`,
  text_written: (it) => joined(it.path, it.content),
  text_edited: (it) => (it.find ? `${it.find} → ${it.content}` : it.content),
  text_deleted: (it) => (it.target ? `now ${it.target}` : "its history stays"),
  item_put: (it) => `${[...(it.namespace ?? []), it.key].join("/")}: ${JSON.stringify(it.value)}`,
};

const SAID = ["content", "title", "reason"];

/** Return what an event says, as one line of text. */
export function describe(event) {
  const line = LINES[event.kind]?.(event) ?? SAID.map((name) => event[name]).find((each) => typeof each === "string") ?? "";
  return String(line).replaceAll("\n", " ⏎ ");
}

/** Return the direction of that line: the arrows of a fact point to the right, also between words from right to left. */
export const directionOf = (event) => (event.kind === "fact_asserted" ? "ltr" : "auto");
