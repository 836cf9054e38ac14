// What differs between two texts, by words or by lines.

const MAX_CELLS = 4_000_000; // cells of the table; beyond that, the middle is shown as replaced

/** Return [{kind: "same" | "gone" | "new", text}] in order; `by` is "words" or "lines". */
export function diffText(before, after, by = "words") {
  const [a, b] = [split(before, by), split(after, by)];
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const middle = between(a.slice(start, a.length - end), b.slice(start, b.length - end));
  return merged([...a.slice(0, start).map(same), ...middle, ...a.slice(a.length - end).map(same)]);
}

const split = (text, by) => (by === "lines" ? text.match(/[^\n]*\n|[^\n]+$/g) : text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu)) ?? [];
const same = (text) => ({ kind: "same", text });
const gone = (text) => ({ kind: "gone", text });
const fresh = (text) => ({ kind: "new", text });

/** The longest common subsequence, by the usual table. */
function between(a, b) {
  if (a.length * b.length > MAX_CELLS) return [...a.map(gone), ...b.map(fresh)];
  const width = b.length + 1;
  const common = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      common[i * width + j] = a[i] === b[j] ? common[(i + 1) * width + j + 1] + 1 : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
    }
  }
  const found = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) found.push(same(a[i++])), j++;
    else if (i < a.length && (j === b.length || common[(i + 1) * width + j] >= common[i * width + j + 1])) found.push(gone(a[i++]));
    else found.push(fresh(b[j++]));
  }
  return found;
}

/** Join neighbours of one kind, what is gone before what is new. */
function merged(parts) {
  const found = [];
  for (const { kind, text } of parts) {
    const last = found.at(-1);
    if (last?.kind === kind) last.text += text;
    else if (kind === "gone" && last?.kind === "new" && found.at(-2)?.kind === "gone") found.at(-2).text += text;
    else found.push({ kind, text });
  }
  return found;
}
