// A banner that says that some sources are switched off, so that a what-if is not mistaken for the real page.
import { html } from "../lib/base.js";
import { without } from "../lib/api.js";
import { go, link } from "../lib/route.js";
import { Text } from "../lib/text.js";

export const Silenced = () => without.value !== "" && html`<div class="banners" role="status"><div class="banner silenced"><span>Shown as if <strong><${Text} value=${without.value.replaceAll(",", ", ")} /></strong> had been silent.</span>
  <a class="button" href=${link({}, "what-if")}>What if</a> <button type="button" onClick=${() => go({ without: null })}>Switch on again</button></div></div>`;
