r"""Users' regular expressions, run by RE2 in time linear in the text.

A backtracking pattern may take hours for one line, and nothing can interrupt it. RE2 has no backreferences and no
lookaround. Its \w, \d and \s match ASCII only, so this module replaces them by the Unicode classes that Python uses.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from typing import Protocol

import re2

_CLASSES = {
    "d": r"\p{Nd}",
    "w": r"\pL\pN_",
    "s": r"\t-\r\x1c-\x20\x{85}\pZ",
}
_ANYWHERE = {r"\Z": r"\z", r"\D": r"\P{Nd}"}
_TOKEN = re.compile(r"\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8}|\\.|\[\^?\]?|\]", re.DOTALL)


class UnfitPattern(ValueError):
    """The text is not a regular expression, or cannot be searched for in linear time; the message says why."""


class PatternMatch(Protocol):
    """A match."""

    def groupdict(self, default: str = "") -> dict[str, str]:
        """Return the text of each named group."""
        ...


class Pattern(Protocol):
    """A compiled pattern."""

    @property
    def groupindex(self) -> Mapping[str, int]:
        """The named groups and their numbers."""
        ...

    def search(self, text: str) -> PatternMatch | None:
        """Return the first match, or None."""
        ...


def linear_pattern(text: str) -> Pattern:
    """Compile a Python regular expression with RE2, which searches in linear time. Raises UnfitPattern."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # about syntax that Python may change
            re.compile(text)
    except (re.error, OverflowError, RecursionError) as problem:
        raise UnfitPattern(f"is not a regular expression: {problem}") from None
    options = re2.Options()
    options.log_errors = False  # RE2 would also write them to stderr
    try:
        compiled: Pattern = re2.compile(_with_unicode_classes(text), options)
        return compiled
    except re2.error as problem:
        (reason,) = problem.args
        message = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
        raise UnfitPattern(
            f"cannot be searched for in linear time: {message}; write it without backreferences, lookaround and"
            " repetitions above 1,000"
        ) from None
    except UnicodeEncodeError:
        raise UnfitPattern("is not a regular expression: it contains a lone surrogate") from None


def _with_unicode_classes(text: str) -> str:
    r"""Replace \d, \w and \s by Unicode classes; within brackets, \W and \S keep their ASCII meaning."""
    is_inside = False

    def replacement(found: re.Match[str]) -> str:
        nonlocal is_inside
        found_text = found[0]
        if found_text[0] in "[]":
            is_inside = not found_text.endswith("]") if is_inside else found_text != "]"
        elif len(found_text) > 2:
            return rf"\x{{{found_text[2:]}}}"
        elif found_text in _ANYWHERE:
            return _ANYWHERE[found_text]
        elif unicode_class := _CLASSES.get(found_text[1]):
            return unicode_class if is_inside else f"[{unicode_class}]"
        elif (unicode_class := _CLASSES.get(found_text[1].lower())) and not is_inside:
            return f"[^{unicode_class}]"
        return found_text

    return _TOKEN.sub(replacement, text)
