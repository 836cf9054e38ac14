// The HTTP API client: reads at the moment shown, writes that are safe to retry, problems as errors.
import { checkCaller, connection, epoch, noteState, probe } from "./connection.js";
import { moment, setClockBy } from "./time.js";
import { param } from "./route.js";

const ROOT = "/api/v1";
const ATTEMPTS = 4;

/** Sources that are switched off, as the address has them: "fraud,mail". */
export const without = param("without");

/** An error of the API (RFC 9457). `slug` is the end of its type, such as "version-conflict"; `extra` its own fields. */
export class Problem extends Error {
  constructor(status, { type = "", title = "", detail = "", ...extra } = {}) {
    super(detail || title || `The server answered ${status}.`);
    Object.assign(this, { name: "Problem", status, slug: type.split(":").at(-1), title, detail, extra });
  }
}

/** Return the path of a page's resource: pagePath("user:1/a", "observations", id). */
export const pagePath = (page, ...rest) => path("pages", page, ...rest);

/** Return a path of its segments, each one encoded. */
export const path = (...segments) => `/${segments.map(encodeURIComponent).join("/").replaceAll("%3A", ":")}`;

/** GET a resource as it is now; what is not JSON comes as an ArrayBuffer. Values of `query` may be arrays; null and "" are left out. */
export const get = (resource, query = {}, { signal } = {}) => send("GET", resource, { query, signal });

/** GET a resource as it was at the moment shown, or at `at`, and without the sources switched off. */
export function read(resource, query = {}, { signal, at = moment.peek(), silent = without.peek() } = {}) {
  const past = { at, without_source: silent ? silent.split(",") : [] };
  return send("GET", resource, { query: { ...query, ...past }, signal });
}

/**
 * POST, PUT, PATCH or DELETE. It carries an Idempotency-Key, so it is sent again by itself when the connection breaks.
 * `version` refuses the write when the resource has moved on: Problem 412. A body that is text is sent as it is, as `type`.
 * `signal` ends it, for a write that only computes an answer.
 */
export async function write(method, resource, body, { version, key = newKey(), query = {}, type, signal } = {}) {
  const headers = { ...(type ? { "Content-Type": type } : {}), "Idempotency-Key": key, ...(version === undefined ? {} : { "If-Match": `"${version}"` }) };
  for (let attempt = 1; ; attempt++) {
    try {
      return await send(method, resource, { query, body, headers, signal });
    } catch (error) {
      const passing = error instanceof Problem ? error.status === 503 : error instanceof TypeError;
      if (!passing || attempt === ATTEMPTS) throw error;
      await new Promise((resolve) => setTimeout(resolve, 250 * 2 ** attempt));
    }
  }
}

const tags = new WeakMap();

/** Return the version in the ETag that came with an answer, or undefined. */
export const versionOf = (answer) => tags.get(answer);

/** Return a fresh idempotency key. */
export function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `console-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

async function send(method, resource, { query = {}, body, headers = {}, signal }) {
  const given = body === undefined ? {} : { "Content-Type": "application/json" };
  const begun = epoch.peek();
  const sent = Date.now();
  let response;
  try {
    response = await fetch(address(resource, query), {
      method,
      signal,
      headers: { Accept: "application/json", ...given, ...headers },
      body: body === undefined || typeof body === "string" ? body : JSON.stringify(body),
      credentials: "same-origin",
      cache: "no-store",
    });
  } catch (error) {
    if (error.name !== "AbortError") noteState("server-away");
    throw error;
  }
  setClockBy(response.headers.get("Date"), sent);
  if (!response.ok) throw await problemOf(response, begun);
  if (["connecting", "server-away"].includes(connection.peek().state)) noteState("live");
  if (response.status === 204) return null;
  const isJson = /\bjson\b/.test(response.headers.get("Content-Type") ?? "");
  const answer = await (isJson ? response.json() : response.arrayBuffer());
  const tag = /^(?:W\/)?"(.*)"$/.exec(response.headers.get("ETag") ?? "");
  if (tag && answer && typeof answer === "object") tags.set(answer, tag[1]);
  return answer;
}

/** Return the error of an answer; `begun` is the epoch of its request, which may be older than a sign-in. */
async function problemOf(response, begun) {
  let body = {};
  try {
    body = await response.json();
  } catch {
    // an answer from something between here and the server; its status has to do
  }
  if (response.status === 401 && epoch.peek() === begun) noteState("signed-out", body.detail, body.signs_in_with);
  const problem = new Problem(response.status, body);
  if (problem.slug === "insufficient-scope") checkCaller(); // it may have changed
  if (response.status === 503) probe(); // it may be the engine, or only an archive or files
  return problem;
}

/** Return the address of a resource with its query. */
export function address(resource, query = {}) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== null && each !== undefined && each !== "") search.append(name, String(each));
    }
  }
  return `${ROOT}${resource}${search.size ? `?${search}` : ""}`;
}
