"""Full-text search with SQLite's FTS5: tokenize texts and questions."""

from __future__ import annotations

import re
import sqlite3
from typing import Final
from unicodedata import category

from scratchbus.domain.quoting import encodable
from scratchbus.domain.tokens import EAST_ASIAN
from scratchbus.errors import ScratchbusError

_VOWEL_SIGNS: Final = "".join(sign for sign in map(chr, range(0x900, 0x1D00)) if category(sign) in ("Mn", "Mc"))
"""The combining marks of the scripts of India and South-East Asia, which are as much part of a word as its letters."""

TOKENIZE: Final = f"tokenize = \"porter unicode61 remove_diacritics 2 tokenchars '{_VOWEL_SIGNS}'\""
"""How FTS5 tokenizes texts: English stems, without accents."""

MAX_WORDS: Final = 64
"""The most words of a question that are searched for."""

_PROBE: Final = f"CREATE VIRTUAL TABLE probe USING fts5(content, {TOKENIZE})"
_OF_EVERY_QUESTION: Final = """
a about am an and any are as at be been but by can could did do does doing for from had has have he her his how i if in
into is it its may me might must my of on or our shall she should so some than that the their them then there these they
this those to us was we were what when where which while who whom whose why will with would you your
"""
_FUNCTION_WORDS: Final = frozenset(_OF_EVERY_QUESTION.split())
_RANGES: Final = "\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff"
_THAI: Final = f"[{_RANGES}][{_VOWEL_SIGNS}]*"
"""The pattern of a character of Thai, Lao, Burmese or Khmer, which put no spaces between words, with its signs."""

_PER_PHRASE: Final = 3  # characters of Thai that are searched for together
_CLUSTER: Final = re.compile(_THAI)
_CHARACTER: Final = re.compile(f"([{EAST_ASIAN[1:-1]}{_RANGES}][{_VOWEL_SIGNS}]*)")  # one class: fast to search for
_SPACED: Final = re.compile(f" ?{_CHARACTER.pattern} ?")
_RUN: Final = re.compile(f"({EAST_ASIAN}|(?:{_THAI})+)")
_CONTROL: Final = re.compile("[\x00-\x08]")
_WORD: Final = re.compile(rf"\w[\w{_VOWEL_SIGNS}]*")


def open_database() -> sqlite3.Connection:
    """Return an empty database in memory, for threads that take turns. Raises ScratchbusError without FTS5."""
    database = sqlite3.connect(":memory:", check_same_thread=False)
    try:
        database.execute(_PROBE)
        database.execute("DROP TABLE probe")
    except sqlite3.OperationalError as error:
        database.close()
        raise ScratchbusError(f"this Python's SQLite cannot rank texts ({error}); use one with FTS5") from None
    return database


def words_of(question: str) -> list[str]:
    """Return the distinct words of a question, unchanged; of Thai, each three characters in a row, with spaces."""
    words = _WORD.findall(with_runs_apart(question))
    return list(dict.fromkeys([phrase for word in words for phrase in _phrases(word)][:MAX_WORDS]))


def _phrases(word: str) -> list[str]:
    if not (characters := _CLUSTER.findall(word)):
        return [word]
    last = max(0, len(characters) - _PER_PHRASE)
    return [" ".join(characters[at : at + _PER_PHRASE]) for at in range(last + 1)]


def phrase_of(name: str) -> str:
    """Return the FTS5 query that matches the words of a name in a row; "" if it has none."""
    words = _WORD.findall(spaced(name))[:MAX_WORDS]
    return any_of([" ".join(words)]) if words else ""


def telling_words_of(question: str) -> list[str]:
    """Return the words of a question without English stop words, unless it has no others.

    Negations stay.
    """
    words = words_of(question)
    return [word for word in words if word.casefold() not in _FUNCTION_WORDS] or words


def any_of(words: list[str]) -> str:
    """Return the FTS5 query that matches any of these words."""
    return " OR ".join(f'"{word}"' for word in words)


def spaced(text: str) -> str:
    """Return a text in which each character of a script without spaces between words is a word."""
    return text if text.isascii() else _CHARACTER.sub(r" \1 ", text)


def with_runs_apart(text: str) -> str:
    """Return a text in which each East Asian character, and each run of Thai without a space, is a word."""
    return text if text.isascii() else _RUN.sub(r" \1 ", text)


def unspaced(text: str) -> str:
    """Return a text, or a part of one, as it was before `spaced`."""
    return text if text.isascii() else _SPACED.sub(r"\1", text)


def storable(text: str) -> str:
    """Return a text that SQLite can store, with spaces as in `spaced`."""
    return _CONTROL.sub(" ", encodable(spaced(text)))
