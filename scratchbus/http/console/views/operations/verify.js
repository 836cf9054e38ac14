// Verification: compares everything stored with what the log implies.
import { html, useEffect, useRef, useState } from "../../lib/base.js";
import { runWithProgress } from "../../lib/progress.js";
import { count, Text } from "../../lib/text.js";
import { messageOf } from "../../ui/problem.js";
import { number, Panel } from "./parts.js";

export function Verify() {
  const [state, setState] = useState({ running: false, progress: null, result: null, error: null });
  const controller = useRef(null);
  useEffect(() => () => controller.current?.abort(), []);
  const run = async () => {
    controller.current = new AbortController();
    const { signal } = controller.current;
    setState({ running: true, progress: null, result: null, error: null });
    try {
      const result = await runWithProgress("/verify", { signal, onProgress: (progress) => setState((before) => ({ ...before, progress })) });
      setState({ running: false, progress: null, result, error: null });
    } catch (error) {
      setState({ running: false, progress: null, result: null, error: signal.aborted ? null : error });
    }
  };
  const { running, progress, result, error } = state;
  return html`<${Panel} id="verify" title="Verify" sign=${result ? (result.is_sound ? "good" : "bad") : null}>
    <p class="hint">Folds the log again and compares what comes out with all that is stored. Others go on writing meanwhile.</p>
    <p class="buttons">${running ? html`<button type="button" onClick=${() => controller.current.abort()}>Stop</button>` : html`<button type="button" onClick=${run}>${result ? "Verify again" : "Verify"}</button>`}
      ${running && html`<progress aria-label="Verified" max=${progress?.total ?? 1} value=${progress ? progress.done : undefined}></progress> <span class="quiet number">${progress ? `${number(progress.done)} of ${number(progress.total)} events` : "Starting …"}</span>`}</p>
    <div role="status">${result && html`<p><strong>${result.is_sound ? "All is as it should be." : `${count(result.count, "difference")}.`}</strong> ${count(result.events, "event")}, ${count(result.documents, "document")}, ${count(result.pages, "page")}.</p>`}
      ${result?.findings.length > 0 && html`<ul class="findings">${result.findings.map((each, index) => html`<li key=${index}><strong><${Text} value=${each.kind} /></strong> <code><${Text} value=${each.where} /></code> <${Text} value=${each.what} /></li>`)}</ul>`}
      ${error && html`<p class="wrong"><${Text} value=${messageOf(error)} /></p>`}</div><//>`;
}
