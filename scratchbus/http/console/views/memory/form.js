// Forms that write: the dialog, its error messages, and conflicts with concurrent edits.
import { html, useState } from "../../lib/base.js";
import { Problem, write } from "../../lib/api.js";
import { Dialog, openDialog, useKeyOf } from "../../ui/dialog.js";
import { TextDiff } from "../../ui/diff.js";
import { FormProblem } from "../../ui/problem.js";
import { toast } from "../../ui/toast.js";

/**
 * Open a form. `fields(values, set, problem)` renders its fields; `send(values, version)` returns [method, path, body, options] of
 * the write; `done` is said afterwards. A write that was refused since it moved on says so, and closing shows what is there now.
 * With `version`, what it is based on, and `current(values)`, which returns {text, version} as they are now, it shows the text
 * beside that of the field `text`, and one can go on with the new version.
 */
export const openForm = (given) => openDialog((close) => html`<${Form} ...${given} onClose=${close} />`);

function Form({ title, label, values: first = {}, fields, send, done, version: firstVersion, current, grave = false, wide = false, onClose, onDone }) {
  const [values, setValues] = useState(first);
  const [version, setVersion] = useState(firstVersion);
  const [state, setState] = useState({ busy: false, error: null });
  const key = useKeyOf({ values, version });
  const set = (name) => (event) => setValues({ ...values, [name]: event.target.value });
  const submit = async () => {
    setState({ busy: true, error: null });
    try {
      const [method, path, body, options] = send(values, version);
      const answer = await write(method, path, body, { key: key(), ...options });
      onClose();
      toast(done);
      onDone?.(answer);
    } catch (error) {
      setState({ busy: false, error, now: hasMoved(error) && current ? await current(values).catch(() => null) : null });
    }
  };
  const moved = hasMoved(state.error);
  const goOn = () => (setVersion(state.now.version), setState({ busy: false, error: null }));
  const button = moved && state.now
    ? html`<button key="on" type="button" class="primary" onClick=${goOn}>Go on with version ${state.now.version}</button>`
    : html`<button key="send" type="submit" class=${grave ? "danger" : "primary"} disabled=${state.busy || moved}>${label}</button>`;
  return html`<${Dialog} title=${title} onClose=${onClose} onSubmit=${submit} wide=${wide}
    actions=${html`<button type="button" onClick=${onClose}>Cancel</button>${button}`}>
    ${fields(values, set, state.error)}
    ${state.error && !moved && html`<${FormProblem} error=${state.error} />`}
    ${moved && html`<div class="problem" role="alert"><p><strong>Someone else was faster.</strong></p>
      ${state.now ? html`<${Moved} now=${state.now} text=${values.text ?? first.text ?? ""} />` : html`<p>It was changed since you opened it. Copy what you wrote, close this, and look at what is there now.</p>`}</div>`}
  <//>`;
}

const hasMoved = (error) => error instanceof Problem && error.status === 412;

/** What is there now beside what was about to be written. */
const Moved = ({ now, text }) => html`<p>${now.text === null ? "It was forgotten meanwhile." : "What is there now, and what yours would change:"}</p>
  ${now.text !== null && html`<div class="form-moved"><${TextDiff} before=${now.text} after=${text} /></div>`}`;
