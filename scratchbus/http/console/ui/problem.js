// Errors and empty states, with what to do next.
import { html } from "../lib/base.js";
import { Problem } from "../lib/api.js";
import { connection } from "../lib/connection.js";
import { go } from "../lib/route.js";
import { Text } from "../lib/text.js";
import { isPast } from "../lib/time.js";

/** An error of a request: what is wrong, and buttons to try again and to leave a moment that cannot be read. Nothing when the banner says it. */
export function ProblemNote({ error, retry }) {
  if (isInBanner(error)) return null;
  return html`<div class="problem" role="alert">
    <p><strong><${Text} value=${titleOf(error)} /></strong></p>
    <p><${Text} value=${messageOf(error)} /></p>
    ${retry && html`<button type="button" onClick=${retry}>Try again</button>`}
    ${isPast.value && html` <button type="button" onClick=${() => go({ at: null })}>Back to live</button>`}
  </div>`;
}

/** Why a form could not be sent; what was written stays in it. Nothing when the dialog offers to sign in. */
export function FormProblem({ error }) {
  const isOut = error instanceof Problem && error.status === 401;
  if (isOut && connection.value.state === "signed-out") return null;
  const title = isOut ? "Not sent" : error instanceof Problem ? error.title || "Refused" : "Not reached";
  const text = isOut ? "You were signed out. Send it again." : messageOf(error);
  return html`<div class="problem" role="alert"><p><strong><${Text} value=${title} /></strong></p><p><${Text} value=${text} />${error instanceof TypeError && " What you wrote stays here: send it again when the server is back."}</p></div>`;
}

/** Return whether an error is what the banner says already. */
export function isInBanner(error) {
  if (!(error instanceof Problem)) return connection.value.state === "server-away";
  return error.status === 401 || (error.status === 503 && connection.value.state === "engine-away");
}

/** Return what an error says, for a line. */
export const messageOf = (error) =>
  error instanceof Problem ? error.detail || error.message : `The server did not answer (${error.message}).`;

const titleOf = (error) => (error instanceof Problem ? error.title || `Error ${error.status}` : "Not reached");

/** An empty place: what is not there, and what to do next. */
export const Empty = ({ title, children }) => html`<div class="empty"><h2>${title}</h2>${children}</div>`;

/** What a view says while it loads, if that takes longer than a moment: also how far it is. */
export const Loading = ({ progress }) => html`<span class="loading">Loading …${progress ? html` <span aria-hidden="true">${progress}</span>` : ""}</span>`;
