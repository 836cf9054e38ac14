// The data of a view: reloaded when the moment, the page or the connection changes, and after relevant events.
import { useEffect, useRef, useState } from "./base.js";
import { epoch } from "./connection.js";
import { onEvents } from "./live.js";
import { Problem, without } from "./api.js";
import { isPast, moment } from "./time.js";

const SETTLE = 120; // milliseconds in which several reasons to load again become one

/**
 * Load with `load(signal)` whenever one of `inputs` changes; return {data, error, loading, reload}. The last data stays
 * while the next is on its way, but not when the answer is 403 or 404. `on(event)` says whether an event, when live, is
 * a reason to load again. `isTimeless` says that the data is the same at every moment shown, and with every source.
 * `reload` lets a load on its way finish, and then loads once more.
 */
export function useLoad(load, inputs, { on, isTimeless = false } = {}) {
  const [state, setState] = useState({ data: null, error: null, loading: true });
  const latest = useRef(load);
  latest.current = load;
  const running = useRef(null); // {controller, done, next} while a load is on its way

  const run = async (controller) => {
    setState((before) => ({ ...before, loading: true }));
    try {
      const data = await latest.current(controller.signal);
      if (!controller.signal.aborted) setState({ data, error: null, loading: false });
    } catch (error) {
      const keep = ({ data }) => (error instanceof Problem && [403, 404].includes(error.status) ? null : data);
      if (!controller.signal.aborted) setState((before) => ({ data: keep(before), error, loading: false }));
    }
    if (running.current?.controller === controller) running.current = null;
  };
  const start = () => {
    running.current?.controller.abort();
    const controller = new AbortController();
    const current = (running.current = { controller, done: null, next: null });
    return (current.done = run(controller));
  };
  const reload = useRef(() => {
    const current = running.current;
    if (!current) return start();
    // never aborted here: reasons that come faster than answers would keep every answer from being shown
    return (current.next ??= current.done.then(() => (current.controller.signal.aborted ? undefined : start())));
  }).current;

  useEffect(() => {
    start();
    return () => running.current?.controller.abort();
  }, [...inputs, ...(isTimeless ? [] : [moment.value, without.value]), epoch.value]);

  useEffect(() => {
    if (!on) return undefined;
    let timer = 0;
    const stop = onEvents((events) => {
      if (timer || (isPast.peek() && !isTimeless) || !events.some(on)) return;
      timer = setTimeout(() => ((timer = 0), reload()), SETTLE);
    });
    return () => (clearTimeout(timer), stop());
  }, [...inputs]);

  return { ...state, reload };
}
