// The width of the window, for what style sheets cannot decide alone.
import { signal } from "./base.js";

const query = matchMedia("(max-width: 760px)");

/** Whether rows take two lines. */
export const narrow = signal(query.matches);
query.addEventListener("change", () => (narrow.value = query.matches));
