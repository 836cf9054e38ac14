// The filter language: `type:risk_alert tag:card -source:mail some words`.

const TERMS = /(-?)(?:([a-z_]+):)?(?:"([^"]*)"?|(\S+))/g;

/** Return [{name, value, not}]; words without a known name have the name "text". Quotes keep spaces: tag:"to do". */
export function parseQuery(text, names) {
  const found = [];
  for (const [, not, name, quoted, bare] of text.matchAll(TERMS)) {
    const value = quoted ?? bare;
    if (!value && !name) continue;
    if (name && !names.includes(name)) found.push({ name: "text", value: `${name}:${value ?? ""}`.toLowerCase(), not: not === "-" });
    else if (value) found.push({ name: name ?? "text", value: name ? value : value.toLowerCase(), not: not === "-" });
  }
  return found;
}

/** Return the text with a term added, or taken out when it is there; one that excludes the same value goes. */
export function toggleTerm(text, name, value) {
  const terms = [...text.matchAll(TERMS)].map(([term, not, itsName, quoted, bare]) => ({ term, not, isIt: itsName === name && (quoted ?? bare) === value }));
  const others = terms.filter(({ isIt }) => !isIt).map(({ term }) => term);
  if (!terms.some(({ isIt, not }) => isIt && !not)) others.push(`${name}:${/\s/.test(value) ? `"${value}"` : value}`);
  return others.join(" ");
}

/** Return whether a row fits: of several terms with one name, one has to; of words and tags, all. */
export function fits(terms, valuesOf) {
  const any = new Map();
  for (const { name, value, not } of terms) {
    const has = name === "text" ? valuesOf("text").some((text) => text.includes(value)) : valuesOf(name).includes(value);
    if (not ? has : !has && (name === "text" || name === "tag")) return false;
    if (!not && name !== "text" && name !== "tag") any.set(name, (any.get(name) ?? false) || has);
  }
  return [...any.values()].every(Boolean);
}
