// The kinds of events, with their groups and colours.

/** Every kind of event, as the server names them. */
export const EVENT_KINDS = [
  "added", "updated", "repeated", "status_changed", "claimed", "released", "lapsed", "linked", "due", "cleared", "erased",
  "types_changed", "relations_changed", "context_rendered", "notepad_written", "notepad_edited", "note_added", "note_updated", "note_deleted",
  "session_spawned", "session_started", "session_ended", "todo_written", "task_begun", "task_ended", "scratchpad_written",
  "run_ended", "preference_remembered", "preference_forgotten", "fact_asserted", "fact_retracted",
  "turn_appended", "turns_compacted", "file_written", "file_removed", "text_written", "text_edited", "text_deleted",
  "item_put", "item_used", "item_deleted",
];

/** Groups of kinds in the order of the histogram's stacks; each has the colour --kind-<name>. */
export const KIND_GROUPS = [
  ["added", ["added", "repeated"]],
  ["changed", ["updated", "status_changed", "linked", "due"]],
  ["claims", ["claimed", "released", "lapsed"]],
  ["removed", ["cleared", "erased"]],
  ["memory", EVENT_KINDS.slice(EVENT_KINDS.indexOf("context_rendered"))],
  ["types", ["types_changed", "relations_changed"]],
];

/** Return the name of a kind's group. */
export const groupOf = (kind) => KIND_GROUPS.find(([, kinds]) => kinds.includes(kind))?.[0] ?? "memory";
