// Reads of memories, at the moment shown. Silenced sources are ignored, since memories have no what-if.
import { get, path, read } from "../../lib/api.js";
import { beyond, moment } from "../../lib/time.js";

/** GET what belongs to a session, as it was at the moment shown or at `at`. */
export const recall = (session, rest, query = {}, { at = moment.peek(), ...options } = {}) =>
  read(sessionPath(session, ...rest), query, { ...options, at, silent: "" });

/** Return the path of what belongs to a session. */
export const sessionPath = (session, ...rest) => path("sessions", session, ...rest);

/** Return the page on which the events of a session are. */
export const pageOf = (session) => `session:${session}`;

/** Return whether an event is about one of these subjects of a session; a subject may end in `*`. */
export const isAbout = (session, subject) => (event) =>
  event.page === pageOf(session) && (subject.endsWith("*") ? event.subject.startsWith(subject.slice(0, -1)) : event.subject === subject || event.kind === "session_ended");

/** Return the events of these kinds on a page up to the moment shown, oldest first. */
export async function eventsOf(page, kinds, signal, last = 200) {
  const at = moment.peek();
  return (await get("/events", { last, before: at && beyond(at), page, kind: kinds }, { signal })).items;
}
