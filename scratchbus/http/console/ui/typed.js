// Fields whose text is a parameter of the address.
import { useEffect, useRef, useState } from "../lib/base.js";
import { go } from "../lib/route.js";

/**
 * Return [text, setText] of a field that is kept in the parameter `name`, with its signal. The address follows `wait`
 * milliseconds after the last letter, and the field follows links and the back button. `otherwise` is the signal's default.
 */
export function useTyped(name, signal, wait, otherwise = "") {
  const [typed, setTyped] = useState(signal.value);
  const sent = useRef(signal.value);
  useEffect(() => {
    const timer = setTimeout(() => {
      sent.current = typed.trim() || otherwise;
      go({ [name]: sent.current === otherwise ? null : sent.current }, { replace: true });
    }, wait);
    return () => clearTimeout(timer);
  }, [typed]);
  useEffect(() => {
    if (signal.value === sent.current) return; // what the field says already, or an earlier part of it
    sent.current = signal.value;
    setTyped(signal.value);
  }, [signal.value]);
  return [typed, setTyped];
}
