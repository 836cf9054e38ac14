"""Generate the blocking facades from the asyncio ones: every `X_async.py` below `scratchbus/` becomes `X.py` beside it.

The asyncio file is the source. Signatures, docstrings and bodies are written there once. The generated file is
committed, so that editors, type checkers and tracebacks see plain code. `make generate` writes the files, and
`make check` fails when one is stale. A file without the note that it is generated is left alone.

Two kinds of comments steer it, each closed by `# end`:

    # asyncio only:        the lines up to the end are left out
    # blocking only:       the commented lines up to the end become code

In docstrings, a remark in parentheses on one line that begins with "asyncio:" is left out.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tokenize
from pathlib import Path

from tools.generated import ROOT, write_or_check

RUFF = shutil.which("ruff", path=str(Path(sys.executable).parent)) or "ruff"
FIXED = "I001,F401,RUF100"
"""The rules of ruff that are applied: imports are sorted, and what only asyncio code needs goes."""

SUFFIX = "_async"
NOTE = "by tools/generate_blocking.py"

NAMES = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "StopAsyncIteration": "StopIteration",
    "_connect_in_time": "_connect",
    "aclose": "close",
    "async_engine": "engine",
    "async_reader": "reader",
    "asyncio": "threading",
}
"""What an asyncio name is called in blocking code, besides `async_x`, `x_async` and `AsyncX`."""

PROSE = (
    (r" \(asyncio: [^)\n]*\)", ""),
    (r"\b([Aa])n `async (with|for)\b", r"\1 `\2"),
    (r"\basync (with|for)\b", r"\1"),
    (r"\b([Aa])n Async(?=[A-Z])", r"\1 "),
    (r"\bAsync([A-Z]\w*)", r"\1"),
    (r"\b([Aa]ny|[Oo]ne) task\b", r"\1 thread"),
    (r"\b([Aa]nother|other) task(s?)\b", r"\1 thread\2"),
    (r"\bbetween tasks\b", "between threads"),
)
"""What changes in docstrings, comments and other strings, as regular expressions with their replacements."""


def blocking(source: str) -> str:
    """Return the blocking version of an asyncio module."""
    text = _without_regions(source)
    lines = text.splitlines(keepends=True)
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    edits: list[tuple[tuple[int, int], tuple[int, int], str]] = []
    for at, token in enumerate(tokens):
        if token.type == tokenize.STRING or token.type == tokenize.COMMENT:
            edits.append((token.start, token.end, _prose(token.string)))
        elif token.type == tokenize.NAME and token.string in ("async", "await"):
            edits.append((token.start, tokens[at + 1].start, ""))
        elif token.type == tokenize.NAME and token.string == "Awaitable" and tokens[at + 1].string == "[":
            close = _closing(tokens, at + 1)
            edits.append((token.start, tokens[at + 1].end, ""))
            edits.append((tokens[close].start, tokens[close].end, ""))
        elif token.type == tokenize.NAME:
            name = _name(token.string)
            if name != token.string:
                edits.append((token.start, token.end, name))
    for (row, start), (last, end), new in sorted(edits, reverse=True):
        head, tail = lines[row - 1][:start], lines[last - 1][end:]
        lines[row - 1 : last] = [head + new + tail]
    return "".join(lines)


def _name(name: str) -> str:
    if name in NAMES:
        return NAMES[name]
    return re.sub(r"^(_?)Async(?=[A-Z])", r"\1", name.removesuffix(SUFFIX))


def _prose(text: str) -> str:
    for pattern, replacement in PROSE:
        text = re.sub(pattern, replacement, text)
    return text


def _closing(tokens: list[tokenize.TokenInfo], opening: int) -> int:
    """Return the index of the bracket that closes the one at an index."""
    depth = 0
    for at in range(opening, len(tokens)):
        depth += {"[": 1, "]": -1}.get(tokens[at].string, 0)
        if depth == 0:
            return at
    raise ValueError("a bracket is not closed")


def _without_regions(source: str) -> str:
    kept: list[str] = []
    region = ""
    for line in source.splitlines(keepends=True):
        text = line.strip()
        if text in ("# asyncio only:", "# blocking only:"):
            region = text
        elif region and text == "# end":
            region = ""
        elif region == "# blocking only:":
            kept.append(re.sub(r"^(\s*)# ?", r"\1", line))
        elif not region:
            kept.append(line)
    if region:
        raise ValueError(f"{region!r} has no end")
    return "".join(kept)


def generated(source: Path) -> str:
    """Return what the file beside an asyncio module should hold, formatted."""
    docstring, rest = re.match(r'(""".*?"""\n)(.*)', blocking(source.read_text("utf-8")), re.DOTALL).groups()  # type: ignore[union-attr]  # every module has a docstring
    note = f"# Generated from {source.name} {NOTE}. Edit that file, then run `make generate`.\n"
    text = docstring + "\n" + note + rest
    target = str(target_of(source).relative_to(ROOT))
    for step in (
        ["check", "--fix", "--exit-zero", "--quiet", "--fixable", FIXED, "--stdin-filename", target, "-"],
        ["format", "--stdin-filename", target, "-"],
    ):
        text = subprocess.run([RUFF, *step], input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return text


def target_of(source: Path) -> Path:
    """Return the path of the blocking module beside an asyncio one."""
    return source.with_name(source.name.replace(f"{SUFFIX}.py", ".py"))


def main() -> int:
    """Write the blocking facades, or with `--check` say which are stale."""
    texts = {}
    for source in sorted((ROOT / "scratchbus").rglob(f"*{SUFFIX}.py")):
        target = target_of(source)
        if target.exists() and NOTE in target.read_text("utf-8"):  # else it is written by hand
            texts[target] = generated(source)
    return write_or_check(texts)


if __name__ == "__main__":
    sys.exit(main())
