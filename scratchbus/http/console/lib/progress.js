// Work that takes long, with its progress: a POST that is answered by a stream of events.
import { address, Problem } from "./api.js";

/** POST, call `onProgress({done, total})` while it goes on, and return the result. Raises Problem. */
export async function runWithProgress(resource, { onProgress, signal } = {}) {
  const response = await fetch(address(resource), { method: "POST", signal, headers: { Accept: "text/event-stream" }, credentials: "same-origin", cache: "no-store" });
  if (!response.ok) throw new Problem(response.status, await response.json().catch(() => ({})));
  for await (const { event, data } of eventsIn(response.body)) {
    if (event === "progress") onProgress?.(data);
    else if (event === "result") return data;
    else if (event === "problem") throw new Problem(data.status, data);
  }
  throw new Problem(0, { title: "Broken off", detail: "The server went away before it was done." });
}

async function* eventsIn(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value.replaceAll("\r\n", "\n");
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const lines = text.slice(0, end).split("\n");
      text = text.slice(end + 2);
      const valueOf = (name) => lines.filter((line) => line.startsWith(`${name}:`)).map((line) => line.slice(name.length + 1).trimStart()).join("\n");
      if (valueOf("data")) yield { event: valueOf("event"), data: JSON.parse(valueOf("data")) };
    }
  }
}
