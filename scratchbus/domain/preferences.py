"""Preferences: checks of their keys and texts, and the meaning of a key, which identifies a preference."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final
from unicodedata import category, normalize

from scratchbus.domain.checks import check_length, check_text
from scratchbus.domain.quoting import visible
from scratchbus.errors import InvalidField, shown

MAX_KEY: Final = 200
"""The most characters in a key."""

MAX_TEXT: Final = 4_000
"""The most characters in a text."""

MARKS: Final = "scratchbus:preferences"
"""The words that mark the preferences in a file; neither keys nor texts may contain them."""

_WORD: Final = re.compile(r"[^\W_]+[+#]*")
_SIBILANTS: Final = ("ches", "shes", "sses", "xes", "zes")
_NO_PLURALS: Final = ("ss", "us", "is")


def check_key(key: object) -> str:
    """Return a key: one line of up to 200 characters with a letter or digit, with runs of blanks made single."""
    text = check_text("key", key)
    if visible(text) != text.replace("\t", "    "):
        raise InvalidField("key", f"{shown(text)} is not one line of visible text; use a few words, as `quotes in JS`")
    text = " ".join(text.split())
    if not meaning_of(text):
        raise InvalidField("key", f"{shown(text)} names nothing; use a few words, as `quotes in JS`")
    if "**" in text or MARKS in text:
        raise InvalidField("key", f"{shown(text)} contains `**` or `{MARKS}`, which mark preferences in files")
    check_length("key", text, MAX_KEY, "put the details into the text")
    return text


def check_preference(text: object) -> str:
    """Return the text of a preference: not blank, up to 4,000 characters, without trailing blanks on its lines."""
    lf_text = check_text("text", text).replace("\r\n", "\n").replace("\r", "\n")
    lines = [line.rstrip() for line in lf_text.strip().split("\n")]
    preference = "\n".join(lines)
    if not preference:
        raise InvalidField("text", "is empty; say how it should be done, or forget the preference")
    if MARKS in preference:
        raise InvalidField("text", f"contains `{MARKS}`, which marks the preferences in files")
    if any(category(char) == "Cc" and char not in "\n\t" for char in preference):
        raise InvalidField("text", "contains control characters; leave them out")
    check_length("text", preference, MAX_TEXT, "shorten it, or split it into several preferences")
    return preference


def meaning_of(key: str) -> str:
    """Return a key in its normal form, which is the same for keys that mean the same.

    Case, blanks, punctuation, the form of a character (Unicode NFKC) and the regular plural of an English word do not
    count: `Commit messages`, `commit-message` and `COMMIT_MESSAGES` are one key. The order of words counts, and so do
    `+` and `#` after a word: `C`, `C++` and `C#` are three.
    """
    return " ".join(_singular(word) for word in _WORD.findall(normalize("NFKC", key).casefold()))


def _singular(word: str) -> str:
    """Return an English word without a regular plural ending; short words stay unchanged."""
    if len(word) < 4 or not word.endswith("s") or word.endswith(_NO_PLURALS):
        return word
    if word.endswith("ies"):
        return f"{word[:-3]}y"
    return word[:-2] if word.endswith(_SIBILANTS) else word[:-1]


def subject_of(prefix: str, key: str) -> str:
    """Return the subject of the preference with a key: a prefix and 64 bits of the digest of the key's normal form."""
    return prefix + sha256(meaning_of(key).encode()).hexdigest()[:16]
