r"""Regular expressions whose search takes time linear in the text: what a user writes, run by RE2.

A pattern that backtracks may take hours over one line, and nothing can interrupt it. RE2 has no backreferences and no
lookaround. Its \w, \d and \s are those of ASCII, so they are written out here as what they are in Python.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Protocol

import re2

_CLASSES = {
    "d": r"\p{Nd}",
    "w": r"\pL\pN_",
    "s": r"\t-\r\x1c-\x20\x{85}\pZ",
}
_ANYWHERE = {r"\Z": r"\z", r"\D": r"\P{Nd}"}
_TOKEN = re.compile(r"\\.|\[\^?\]?|\]", re.DOTALL)


class UnfitPattern(ValueError):
    """A pattern that cannot be searched for in linear time, or is none; says why."""


class Found(Protocol):
    """What was found."""

    def groupdict(self, default: str = "") -> dict[str, str]:
        """Return what the named groups found."""
        ...


class Pattern(Protocol):
    """A compiled pattern."""

    @property
    def groupindex(self) -> Mapping[str, int]:
        """The named groups."""
        ...

    def search(self, text: str) -> Found | None:
        """Return the first place where it matches."""
        ...


def linear_pattern(text: str) -> Pattern:
    """Compile a Python regular expression to be searched for in linear time. Raises UnfitPattern."""
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as problem:
        raise UnfitPattern(f"is not a regular expression: {problem}") from None
    options = re2.Options()
    options.log_errors = False  # on standard error, beside the error that is raised
    try:
        compiled: Pattern = re2.compile(_with_unicode_classes(text), options)
        return compiled
    except re2.error as problem:
        (reason,) = problem.args
        told = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
        raise UnfitPattern(
            f"cannot be searched for in linear time: {told}; write it without backreferences, lookaround and"
            " repetitions above 1,000"
        ) from None
    except UnicodeEncodeError:
        raise UnfitPattern("is not a regular expression: it has half a character") from None


def _with_unicode_classes(text: str) -> str:
    r"""Write out \d, \w and \s; within brackets \W and \S stay those of ASCII."""
    is_inside = False

    def written_out(found: re.Match[str]) -> str:
        nonlocal is_inside
        found_text = found[0]
        if found_text[0] in "[]":
            is_inside = not found_text.endswith("]") if is_inside else found_text != "]"
        elif found_text in _ANYWHERE:
            return _ANYWHERE[found_text]
        elif own := _CLASSES.get(found_text[1]):
            return own if is_inside else f"[{own}]"
        elif (own := _CLASSES.get(found_text[1].lower())) and not is_inside:
            return f"[^{own}]"
        return found_text

    return _TOKEN.sub(written_out, text)
