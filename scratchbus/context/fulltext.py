"""Full-text search with SQLite's FTS5: tokenize texts and questions."""

from __future__ import annotations

import re
import sqlite3
from typing import Final

from scratchbus.domain.quoting import encodable
from scratchbus.domain.tokens import EAST_ASIAN
from scratchbus.errors import ScratchbusError

TOKENIZE: Final = "tokenize = 'porter unicode61 remove_diacritics 2'"
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
_EAST_ASIAN: Final = re.compile(f"({EAST_ASIAN})")
_SPACED: Final = re.compile(f" ?{_EAST_ASIAN.pattern} ?")
_CONTROL: Final = re.compile("[\x00-\x08]")
_WORD: Final = re.compile(r"\w+")


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
    """Return the distinct words of a question, unchanged."""
    return list(dict.fromkeys(_WORD.findall(spaced(question))[:MAX_WORDS]))


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
    """Return a text in which each East Asian character is a word: these scripts put no spaces between words."""
    return text if text.isascii() else _EAST_ASIAN.sub(r" \1 ", text)


def unspaced(text: str) -> str:
    """Return a text, or a part of one, as it was before `spaced`."""
    return text if text.isascii() else _SPACED.sub(r"\1", text)


def storable(text: str) -> str:
    """Return a text that SQLite can store, in which each East Asian character is a word."""
    return _CONTROL.sub(" ", encodable(spaced(text)))
