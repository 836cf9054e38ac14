// The keyboard: every shortcut of what is on the screen is registered here, so that `?` can list them.
import { signal, useLayoutEffect } from "./base.js";
import { shortcuts } from "./state.js";

const registered = signal([]);

/** The shortcuts of what is on the screen, [{keys, label, group}]. */
export const keyList = registered;

/**
 * Register shortcuts while a component is shown: [{keys: "l", label: "Back to live", group: "Time", run}]. `keys` is
 * KeyboardEvent.key, several separated by spaces; `repeat: false` ignores a key held down; `when()` may switch it off.
 */
export function useKeys(list, inputs = []) {
  useLayoutEffect(() => {
    registered.value = [...registered.peek(), ...list];
    return () => (registered.value = registered.peek().filter((each) => !list.includes(each)));
  }, inputs);
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (document.querySelector("dialog[open], [role=menu]")) return;
  if (takesText(event.target)) return void (event.key === "Escape" && leave(event.target));
  if (event.key.length === 1 && event.key !== "?" && shortcuts.peek() === "off") return;
  const key = event.key === " " ? "Space" : event.key;
  const found = registered.peek().findLast((each) => each.keys.split(" ").includes(key) && (each.when?.() ?? true));
  if (!found || (event.repeat && found.repeat === false)) return;
  if (key === "Space" && event.target.closest("button, a, summary, [role=row]")) return;
  event.preventDefault();
  found.run(event);
});

/** Leave a field, and nothing else: what is open beside it stays open. The browser empties a search first. */
const leave = (element) => (element.type === "search" && element.value !== "") || element.blur();

const takesText = (element) =>
  element.isContentEditable || (/^(INPUT|TEXTAREA|SELECT)$/.test(element.tagName) && !/^(checkbox|button|range)$/.test(element.type));
