"""The length of a text in tokens of a language model: from the caller's own counter, or estimated."""

from __future__ import annotations

import re
from math import ceil, inf, nan
from typing import Final, Protocol, SupportsFloat

from scratchbus.errors import InvalidField, shown

_PIECE: Final = re.compile(
    r"[0-9]"
    r"| ?(?:"
    r"[A-Z](?=[a-z](?![a-z]))"  # two letters alone: part of base64 rather than of a word
    r"|[A-Z]?[a-z]{1,7}"
    r"|[!-/:-@\[-`{-~]{1,2}"
    r"|[A-Z]{1,2}"
    r"|\n+"
    r"|[^\S\n]+"
    r"|[^ -~]"
    r")"
)
"""The pattern that counts as one token: few real tokens are shorter, most words are longer."""

EAST_ASIAN: Final = "[\u2e80-\ua4cf\uac00-\ud7af\uf900-\ufaff]"
"""The pattern of a character of a script that puts no spaces between words."""

_EAST_ASIAN: Final = re.compile(EAST_ASIAN)
_SUPPLEMENTARY: Final = re.compile("[\U00010000-\U0010ffff]")


class TokenCounter(Protocol):
    """Any function that returns the number of tokens in a text."""

    def __call__(self, text: str, /) -> int:
        """Return the number of tokens in a text."""
        ...


def checked_counter(counter: TokenCounter | None) -> TokenCounter:
    """Return a counter that rounds up what another one returns, by default `estimate_tokens`.

    Raises InvalidField, also when it is called, unless the other one is a function that returns a number from 0 on.
    """
    if counter is None or counter is estimate_tokens:
        return estimate_tokens
    if not callable(counter):
        raise InvalidField("counter", f"{shown(counter)} cannot be called; pass a function that counts tokens")

    def count(text: str) -> int:
        tokens: object = counter(text)
        number = float(tokens) if isinstance(tokens, SupportsFloat) else nan
        if not 0 <= number < inf:
            raise InvalidField("counter", f"returned {shown(tokens)} for a text; return its number of tokens")
        return ceil(number)

    return count


def estimate_tokens(text: str) -> int:
    """Return the approximate number of tokens in a text, from its characters, without a vocabulary.

    The estimate is high rather than low: in English, Markdown, JSON, ids, Chinese, Japanese and Korean it is at most a
    tenth below, and usually 5 to 35 % above, the count of current tokenizers.
    """
    count: float = _PIECE.subn("", text)[1]  # twice as fast as a list of the matches
    if not text.isascii():
        count += 0.35 * len(_EAST_ASIAN.findall(text)) + 2 * len(_SUPPLEMENTARY.findall(text))
    return ceil(count)
