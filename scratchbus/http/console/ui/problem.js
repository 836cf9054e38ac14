// Errors and empty states, with what to do next.
import { html } from "../lib/base.js";
import { Problem } from "../lib/api.js";
import { go } from "../lib/route.js";
import { Text } from "../lib/text.js";
import { isPast } from "../lib/time.js";

/** An error of a request: what is wrong, and buttons to try again and to leave a moment that cannot be read. Nothing when signed out: the banner says so. */
export function ProblemNote({ error, retry }) {
  if (isSignedOut(error)) return null;
  return html`<div class="problem" role="alert">
    <p><strong><${Text} value=${titleOf(error)} /></strong></p>
    <p><${Text} value=${messageOf(error)} /></p>
    ${retry && html`<button type="button" onClick=${retry}>Try again</button>`}
    ${isPast.value && html` <button type="button" onClick=${() => go({ at: null })}>Back to live</button>`}
  </div>`;
}

/** Return whether an error is what the banner says already. */
export const isSignedOut = (error) => error instanceof Problem && error.status === 401;

/** Return what an error says, for a line. */
export const messageOf = (error) =>
  error instanceof Problem ? error.detail || error.message : `The server did not answer (${error.message}).`;

const titleOf = (error) => (error instanceof Problem ? error.title || `Error ${error.status}` : "Not reached");

/** An empty place: what is not there, and what to do next. */
export const Empty = ({ title, children }) => html`<div class="empty"><h2>${title}</h2>${children}</div>`;

/** What a view says while it loads, if that takes longer than a moment: also how far it is. */
export const Loading = ({ progress }) => html`<span class="loading">Loading …${progress ? ` ${progress}` : ""}</span>`;
