// Text in which ids of observations are links to their stories.
import { html } from "../lib/base.js";
import { link } from "../lib/route.js";
import { ID, shortId, Text } from "../lib/text.js";

export const LinkedText = ({ value }) =>
  value.split(ID).map((part, index) =>
    index % 2 ? html`<a key=${index} class="id" href=${link({ selected: part }, "story")} title=${part}>${shortId(part)}</a>` : html`<${Text} key=${index} value=${part} lines />`);
