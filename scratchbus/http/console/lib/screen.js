// The width of the window and whether it is being printed, for what style sheets cannot decide alone.
import { signal } from "./base.js";

const query = matchMedia("(max-width: 760px)");

/** Whether rows take two lines. */
export const narrow = signal(query.matches);
query.addEventListener("change", () => (narrow.value = query.matches));

/** Whether the window is being printed. */
export const printing = signal(false);
addEventListener("beforeprint", () => (printing.value = true));
addEventListener("afterprint", () => (printing.value = false));

/** Scroll a box sideways until one of its elements is in sight. `scrollIntoView` would also let Tab begin there. */
export function reveal(element, box) {
  const [inner, outer] = [element, box].map((each) => each.getBoundingClientRect());
  box.scrollLeft += Math.max(0, inner.right - outer.right) + Math.min(0, inner.left - outer.left);
}
