"""Checks of callers' arguments: each function returns the value in its stored form, or raises InvalidInput."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from scratchbus.domain.payloads import least_size, plain
from scratchbus.domain.values import MAX_BYTES, check_event_id, check_id, check_whole
from scratchbus.errors import InvalidField, TooLarge, UnknownField, key_text, shown

MAX_LABEL = 256
"""The most characters in a tag, an owner or an action."""

MAX_REASON = 4_096
"""The most bytes in a reason."""

MAX_KEY = 512
"""The most bytes in a dedupe key."""

MAX_EVIDENCE = 1_000
"""The most evidence ids of an observation."""

MAX_BLOCKERS = 100
"""The most ids in `blocked_by`."""

MAX_DEPTH = 100
"""The deepest nesting of context and metadata; their readers fail near 200."""

MAX_DIGITS = 308
"""The most digits of a whole number in context and metadata, so that readers with doubles do not read infinity."""

PLAIN_LABEL = rf"[!-~]{{1,{MAX_LABEL}}}"
"""The pattern that nearly all labels match."""

_MAX_WRITTEN = 16 * MAX_BYTES  # an object with more bytes is not written as JSON to count them
_MAX_FLAT_ITEMS, _MAX_FLAT_TEXT = 32, 4_096  # far below MAX_BYTES, even if every character is escaped
_MAX_COUNTED = 10_000  # levels
_MAX_FLAT_NUMBER = 10**15  # JSON has the same digits for it as Python, as an int and as a float
_STR, _NUMBERS, _SCALARS = frozenset({str}), frozenset({int, float}), frozenset({str, int, float, bool, type(None)})

_is_plain = re.compile(PLAIN_LABEL).fullmatch
_LONG_NUMBER = re.compile(rf"[0-9]{{{MAX_DIGITS + 1}}}")
_to_json = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode
_TRIGGERS = ("type", "status", "tags")


def check_own_event_id(event_id: object) -> None:
    """Raise InvalidId unless the event id is None or 1 to 200 printable ASCII characters."""
    if event_id is not None:
        check_event_id(event_id)


def check_content(content: object, limit: int = MAX_BYTES, field: str = "content") -> str:
    """Return a text that is not blank and within the limit (bytes of UTF-8); for a model, its JSON."""
    content = plain("content", content)
    if not isinstance(content, str):
        raise InvalidField(field, f"{shown(content)} is not a text")
    if not content or content.isspace():
        raise InvalidField(field, f"is empty; {'say what was observed' if field == 'content' else 'write a text'}")
    if not content.isascii() or len(content) > limit:
        check_size(field, content, limit)
    return content


def check_size(field: str, text: str, limit: int) -> None:
    """Raise TooLarge for a text of more than `limit` bytes of UTF-8, InvalidField for a lone surrogate."""
    size = bytes_of(field, text)
    if size > limit:
        raise TooLarge(field, size, limit)


def check_text(field: str, value: object) -> str:
    """Return a text, which may be empty. Raises InvalidField, also for a lone surrogate."""
    if not isinstance(value, str):
        raise InvalidField(field, f"{shown(value)} is not a text")
    bytes_of(field, value)
    return str.__str__(value)


def check_not_blank(field: str, value: object, advice: str) -> str:
    """Return a text with a character that is not white space. Raises InvalidField."""
    if isinstance(value, str) and (not value or value.isspace()):
        raise InvalidField(field, f"is empty; {advice}")
    return check_text(field, value)


def check_length(field: str, text: str, limit: int, advice: str = "") -> None:
    """Raise TooLarge for a text of more than `limit` characters."""
    if len(text) > limit:
        raise TooLarge(field, len(text), limit, "characters", advice)


def check_limit(limit: object) -> None:
    """Raise InvalidField unless the limit is None or a positive whole number."""
    if limit is not None:
        check_whole("limit", limit, advice="" if isinstance(limit, int) and limit > 0 else "use None for no limit")


def check_flag(field: str, value: object) -> bool:
    """Return True or False. Raises InvalidField."""
    if not isinstance(value, bool):
        raise InvalidField(field, f"{shown(value)} is neither true nor false")
    return value


def bytes_of(field: str, text: str) -> int:
    """Return the number of bytes of a text in UTF-8. Raises InvalidField for a lone surrogate."""
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise InvalidField(field, "is not valid Unicode text") from None


def check_object(field: str, value: object) -> dict[str, Any]:
    """Return a JSON object of at most 64 KiB and 100 levels, as JSON reads it back; for a model, its JSON."""
    value = plain(field, value)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidField(field, f"{shown(value)} is not a JSON object")
    if type(value) is dict and _is_flat(value):
        return value.copy()
    try:
        if not all(isinstance(key, str) for key in value):
            raise TypeError("keys must be strings")
        least = least_size(value := dict(value), {})
        text = _to_json(value) if least <= _MAX_WRITTEN else ""
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        if isinstance(error, RecursionError):
            _check_depth(field, value)
        raise InvalidField(field, f"is not a JSON object: {error}") from None
    if least > _MAX_WRITTEN:
        raise TooLarge(field, least, MAX_BYTES, "bytes or more")
    if size > MAX_BYTES:
        raise TooLarge(field, size, MAX_BYTES)
    parsed: dict[str, Any] = _from_json(field, text)
    if text.count("{") + text.count("[") > MAX_DEPTH:
        _check_depth(field, parsed)
    return parsed


def _is_flat(value: dict[Any, Any]) -> bool:
    """Return whether a mapping is so small and plain that writing it as JSON and reading it back changes nothing."""
    if len(value) > _MAX_FLAT_ITEMS or not _STR.issuperset(map(type, value)):
        return False
    values = value.values()
    if not _SCALARS.issuperset(map(type, values)):
        return False
    text = "".join([*value, *[each for each in values if type(each) is str]])
    numbers = [each for each in values if type(each) in _NUMBERS]
    return (
        len(text) <= _MAX_FLAT_TEXT
        and text.isascii()
        and all(-_MAX_FLAT_NUMBER <= each <= _MAX_FLAT_NUMBER for each in numbers)
    )


def _from_json(field: str, text: str) -> Any:
    """Return the value of a JSON text. Raises TooLarge for a whole number with too many digits."""
    if _LONG_NUMBER.search(text) is None:
        return json.loads(text)

    def whole(number: str) -> int:
        digits = len(number.lstrip("-"))
        if digits > MAX_DIGITS:
            raise TooLarge(field, digits, MAX_DIGITS, "digits of a whole number", "write it as a text")
        return int(number)

    return json.loads(text, parse_int=whole)


def _check_depth(field: str, value: Any) -> None:
    """Raise TooLarge for a value with too many levels, of which at most `_MAX_COUNTED` are counted."""
    level, depth = [value], 0
    while level and depth < _MAX_COUNTED:
        depth += 1
        children = (each.values() if isinstance(each, Mapping) else each for each in level)
        inner = {id(child): child for each in children for child in each if isinstance(child, dict | list)}
        level = [*inner.values()]
    if depth > MAX_DEPTH:
        raise TooLarge(field, depth, MAX_DEPTH, "levels", "nest it less") from None


def check_label(field: str, value: object) -> str:
    """Return a short text without control characters."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_LABEL or not value.isprintable() or value.isspace():
        raise InvalidField(field, f"{shown(value)} must be 1 to {MAX_LABEL} printable characters")
    return str.__str__(value)  # not a subclass, such as the member of an enum


check_action = partial(check_label, "action")


def check_tags(tags: object, maximum: int = sys.maxsize, field: str = "tags") -> list[str]:
    """Return the tags without duplicates, in the given order; those of a set are sorted.

    Raises InvalidField, and TooLarge above `maximum`.
    """
    if tags is None:
        return []
    if isinstance(tags, str) or not isinstance(tags, list | tuple | set | frozenset):
        raise InvalidField(field, f"{shown(tags)} is not a list of texts")
    for tag in tags:
        if type(tag) is not str or not _is_plain(tag):  # skips the slower check for most tags
            check_label(field, tag)
    unique = sorted(tags) if isinstance(tags, set | frozenset) else list(dict.fromkeys(tags))
    if len(unique) > maximum:
        raise TooLarge(field, len(unique), maximum, "tags", "give fewer")
    return unique


def check_names(field: str, value: str | Collection[str] | None) -> frozenset[str] | None:
    """Return texts as a set; a single one may be given without a list. Raises InvalidField."""
    if value is None:
        return None
    if not isinstance(value, Collection):
        raise InvalidField(field, f"{shown(value)} is neither a text nor a list of texts")
    names = [value] if isinstance(value, str) else value
    for name in names:
        check_text(field, name)
    return frozenset(names)


def check_some(field: str, value: str | Collection[str] | None) -> frozenset[str] | None:
    """Return texts as `check_names` does. Raises InvalidField also for an empty list, which nothing would match."""
    names = check_names(field, value)
    if names is not None and not names:
        raise InvalidField(field, "is empty; name at least one, or leave it out for all")
    return names


def check_ids(ids: object, field: str, maximum: int) -> list[str]:
    """Return ids of observations without duplicates; those of a set are sorted, since a retry may get another order.

    Raises InvalidField, InvalidId or TooLarge.
    """
    if ids is None:
        return []
    if isinstance(ids, str) or not isinstance(ids, Collection):
        raise InvalidField(field, f"{shown(ids)} is not a list of observation ids")
    if len(ids) > maximum:
        raise TooLarge(field, len(ids), maximum, "ids", "give fewer")
    unique = dict.fromkeys(check_id(id, field) for id in ids)
    return sorted(unique) if isinstance(ids, set | frozenset) else list(unique)


check_evidence = partial(check_ids, field="evidence", maximum=MAX_EVIDENCE)
check_blockers = partial(check_ids, field="blocked_by", maximum=MAX_BLOCKERS)


def check_trigger(trigger: object) -> dict[str, Any] | None:
    """Return the conditions that an event must meet to make a reminder due."""
    if trigger is None:
        return None
    if not isinstance(trigger, Mapping):
        raise InvalidField("remind_on", f"{shown(trigger)} is not a mapping of: {', '.join(_TRIGGERS)}")
    unknown = [key for key in trigger if key not in _TRIGGERS]
    if unknown:
        raise UnknownField(f"remind_on.{key_text(unknown[0])}", _TRIGGERS)
    checked: dict[str, Any] = {key: check_label(f"remind_on.{key}", trigger[key]) for key in trigger if key != "tags"}
    if "tags" in trigger:
        checked["tags"] = check_tags(trigger["tags"], MAX_LABEL, "remind_on.tags")
    if not any(checked.values()):  # every event would meet it
        raise InvalidField("remind_on", f"is empty; give at least one of: {', '.join(_TRIGGERS)}")
    return checked


def check_dedupe_key(key: object) -> str:
    """Return a dedupe key of 1 to 512 bytes."""
    text = check_text("dedupe_key", key)
    size = bytes_of("dedupe_key", text)
    if not 0 < size <= MAX_KEY:
        raise InvalidField("dedupe_key", f"must have 1 to {MAX_KEY} bytes, not {size}")
    return text


def check_given_reason(reason: object, advice: str) -> str:
    """Return a reason of at most 4 KiB. Raises InvalidField, with this advice if it is None."""
    if reason is None:
        raise InvalidField("reason", f"is missing; {advice}")
    return check_content(reason, MAX_REASON, "reason")


def check_reason(reason: str | None) -> str | None:
    """Return a reason of at most 4 KiB, or None."""
    return None if reason is None else check_content(reason, MAX_REASON, "reason")
