// An event in a line.
import { duration } from "../../lib/time.js";
import { count } from "../../lib/text.js";

const joined = (...parts) => parts.filter(Boolean).join(" · ");
const named = (changes) => Object.entries(changes).map(([name, value]) => `${name} → ${typeof value === "string" ? value : JSON.stringify(value)}`).join(", ");

const LINES = {
  added: (it) => it.content,
  updated: (it) => named(it.changes ?? {}),
  repeated: (it) => `seen ${count(it.times ?? 1, "more time")}`,
  status_changed: (it) => joined(`${it.reason_code} → ${it.status}`, it.reason),
  claimed: (it) => `by ${it.holder} for ${duration(it.ttl)}`,
  released: (it) => it.reason ?? "",
  lapsed: () => "the claim ran out",
  linked: (it) => it.action,
  due: () => "fell due",
  cleared: () => "off the page; its history stays",
  erased: (it) => joined(it.reason, count(it.positions?.length ?? 0, "event")),
  types_changed: () => "the observation types",
  relations_changed: () => "the relations of facts",
  context_rendered: (it) => joined(it.session && `session ${it.session}`, it.agent && `agent ${it.agent}`, count(Object.keys(it.observations ?? {}).length, "observation"), count(it.tokens ?? 0, "token")),
};

const SAID = ["content", "text", "title", "task", "result", "reason", "status"];

/** Return what an event says, as one line of text. */
export function describe(event) {
  const line = LINES[event.kind]?.(event) ?? SAID.map((name) => event[name]).find((each) => typeof each === "string") ?? "";
  return String(line).replaceAll("\n", " ⏎ ");
}
