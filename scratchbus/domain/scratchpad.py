"""The scratchpad of an agent: its section in the prompt, the prompt at the end of a run, and the answer to it.

The headings, labels and limits are those of the agent framework that scratchpads come from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sized
from itertools import islice
from typing import Any, Final, Literal

from scratchbus.domain.checks import bytes_of, check_text
from scratchbus.domain.quoting import encodable
from scratchbus.domain.values import check_whole
from scratchbus.errors import InvalidField, TooLarge, shown

MAX_CONTENT: Final = 10_000
"""The most characters in a scratchpad."""

Kind = Literal["subagent", "person", "daemon"]
"""The kind of an identity. Only a subagent has a scratchpad."""

COMPLETED: Final = "completed"
ERROR: Final = "error"
MAX_STEPS: Final = "incomplete - max steps reached"
EXCEPTION: Final = "exception"

HEADING: Final = "## Your Scratchpad"
EMPTY: Final = "_Your scratchpad is empty. Use the `update_scratchpad` action to save notes for your future self._"

_PROMPT: Final = """\
## Task Complete

**Task**: {task}
**Outcome**: {outcome}
**Summary**: {summary}{steps}

Please update your scratchpad with any context that would help your future self.
This might include:
- Key learnings from this task
- Important context discovered
- Work in progress or follow-ups needed
- User preferences observed

Your answer replaces the whole scratchpad, so repeat what you want to keep. The limit is {limit} characters.

Respond with JSON:
```json
{{"scratchpad": "your updated scratchpad content"}}
```

If you have nothing to add, respond with:
```json
{{"scratchpad": null}}
```
"""

_FENCED: Final = re.compile(r"```(?:json)?\s*(?=\{)", re.IGNORECASE)
_NULL: Final = re.compile(r"(?:```(?:json)?)?\s*null\s*(?:```)?", re.IGNORECASE)
_MAX_TRIES: Final = 1_000
_decoder: Final = json.JSONDecoder(strict=False)  # models put unescaped line breaks into strings


def check_content(content: object) -> str:
    """Return the new content of a scratchpad; blank becomes "". Raises InvalidField or TooLarge."""
    if not isinstance(content, str):
        raise InvalidField("scratchpad", f"{shown(content)} is not a text")
    if len(content) > MAX_CONTENT:
        message = (
            f"Scratchpad content exceeds maximum length of {MAX_CONTENT} characters (got {len(content)}). Shorten it"
        )
        raise TooLarge("scratchpad", len(content), MAX_CONTENT, message=message)
    bytes_of("scratchpad", content)
    return content if content.strip() else ""


def whoami(name: str, kind: str, content: str | None) -> str:
    """Return an identity's introduction at the start of a run; `content` is None if it has no scratchpad."""
    introduction = f"You are {name}, a {kind}."
    return introduction if content is None else f"{introduction}\n\n{section(content)}"


def section(content: str) -> str:
    """Return the section of a prompt that shows an agent its scratchpad."""
    return f"{HEADING}\n\n{content or EMPTY}"


def end_of_run_prompt(task: str, outcome: str, summary: str, steps: int | Sized | None = None) -> str:
    """Return the prompt at the end of a run; `steps` are the steps, or their number, if known."""
    for field, text in (("task", task), ("outcome", outcome), ("summary", summary)):
        check_text(field, text)
    steps_line = ""
    if steps is not None:
        count = check_whole("steps", len(steps) if isinstance(steps, Sized) else steps, minimum=0)
        steps_line = f"\n**Steps taken**: {count}"
    return _PROMPT.format(task=task, outcome=outcome, summary=summary, steps=steps_line, limit=MAX_CONTENT)


def parse_reply(text: object) -> str | None:
    """Return the scratchpad content in a model's answer, cut to its limit; None to leave the scratchpad unchanged.

    That is the meaning of null, false, and any empty or blank value. The JSON may be fenced or bare, with other text
    around it. Raises InvalidField for an answer without it.
    """
    if not isinstance(text, str):
        raise InvalidField("reply", f"{shown(text)} is not a text")
    if _NULL.fullmatch(text.strip()):
        return None
    value = next((found["scratchpad"] for found in _objects(text) if "scratchpad" in found), _NOTHING)
    if value is _NOTHING:
        raise InvalidField("reply", f'{shown(text)} has no JSON like {{"scratchpad": "…"}}')
    if value is False or value in (None, [], {}):
        return None
    content = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return check_content(encodable(content)[:MAX_CONTENT]) or None


_NOTHING: Final[Any] = object()


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in a text: first those at the start of a fence, then those anywhere."""
    fenced = [match.end() for match in _FENCED.finditer(text)]
    braces = (match.start() for match in re.finditer(r"\{", text))
    for start in islice((*fenced, *braces), _MAX_TRIES):  # limits the time for a text full of braces
        try:
            found, _ = _decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        yield found
