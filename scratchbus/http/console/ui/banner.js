// What is wrong with the connection, and what happens next: below the header, and in a dialog, which covers the header.
import { html, useLayoutEffect, useRef, useState } from "../lib/base.js";
import { write } from "../lib/api.js";
import { connection, missing, noteState, probe } from "../lib/connection.js";
import { visible } from "../lib/text.js";
import { messageOf } from "./problem.js";
import { Age } from "./times.js";

const TOKEN = html`Enter a token of this server.`;
const KEY = html`Open the address that <code>scratchbus serve</code> printed, which has its key, or enter the key.`;

/** The banner; nothing while the connection is good. */
export function Banner() {
  const { state, since, detail, secret } = connection.value;
  const text = {
    "server-away": ["The server does not answer.", "What you see is the last that it sent. The console connects again by itself."],
    "engine-away": ["The engine is away.", detail || "Nothing can be read or written until it is back. The console goes on by itself."],
    "signed-out": ["You are not signed in.", secret === "key" ? KEY : TOKEN],
  }[state];
  if (!text && missing.value) {
    return html`<div class="banner"><strong>A part of the console is missing.</strong> <span>${visible(missing.value)}</span> <button type="button" onClick=${() => location.reload()}>Load again</button></div>`;
  }
  return text && html`<div class="banner ${state}">
    <strong>${text[0]}</strong> <span>${typeof text[1] === "string" ? visible(text[1]) : text[1]}</span> <span class="banner-since">for <${Age} at=${since} fromNow /></span>
    ${state === "signed-out" ? html`<${SignIn} secret=${secret} />` : html`<button type="button" onClick=${probe}>Try now</button>`}</div>`;
}

/** A field for a token or a key, which is kept in a cookie that scripts cannot read. It has the focus unless something else has. */
function SignIn({ secret }) {
  const name = secret === "key" ? "Key" : "Token";
  const [error, setError] = useState(null);
  const input = useRef(null);
  useLayoutEffect(() => void (document.activeElement === document.body && input.current.focus()), []);
  const signIn = async (event) => {
    event.preventDefault();
    try {
      await write("POST", "/login", { token: new FormData(event.target).get("token") });
      noteState("live");
    } catch (problem) {
      setError(problem);
    }
  };
  return html`<form onSubmit=${signIn}><input ref=${input} name="token" type="password" autocomplete="off" required aria-label=${name}
      aria-invalid=${error ? "true" : undefined} placeholder=${name} /><button type="submit">Sign in</button>
    ${error && html`<span class="field-error" role="alert">${error.status === 401 ? `This ${secret} is not valid here: it may be incomplete, ${secret === "key" ? "or of an earlier start" : "expired or revoked"}.` : messageOf(error)}</span>`}</form>`;
}
