// The data of a view: reloaded when the moment, the page or the connection changes, and after relevant events.
import { useEffect, useRef, useState } from "./base.js";
import { epoch } from "./connection.js";
import { onEvents } from "./live.js";
import { without } from "./api.js";
import { isPast, moment } from "./time.js";

const SETTLE = 120; // milliseconds in which several reasons to load again become one

/**
 * Load with `load(signal)` whenever one of `inputs` changes; return {data, error, loading, reload}. The last data stays
 * while the next is on its way. `on(event)` says whether an event, when live, is a reason to load again.
 */
export function useLoad(load, inputs, { on } = {}) {
  const [state, setState] = useState({ data: null, error: null, loading: true });
  const latest = useRef(load);
  latest.current = load;
  const running = useRef(null);

  const reload = useRef(async () => {
    running.current?.abort();
    const controller = (running.current = new AbortController());
    setState((before) => ({ ...before, loading: true }));
    try {
      const data = await latest.current(controller.signal);
      if (!controller.signal.aborted) setState({ data, error: null, loading: false });
    } catch (error) {
      if (!controller.signal.aborted) setState((before) => ({ ...before, error, loading: false }));
    }
  }).current;

  useEffect(() => {
    reload();
    return () => running.current?.abort();
  }, [...inputs, moment.value, without.value, epoch.value]);

  useEffect(() => {
    if (!on) return undefined;
    let timer = 0;
    const stop = onEvents((events) => {
      if (timer || isPast.peek() || !events.some(on)) return;
      timer = setTimeout(() => ((timer = 0), reload()), SETTLE);
    });
    return () => (clearTimeout(timer), stop());
  }, [...inputs]);

  return { ...state, reload };
}
