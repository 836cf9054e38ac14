"""The filters of lists of observations, and the list of a page in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import islice, takewhile
from typing import Annotated, Any, TypedDict

from scratchbus.domain.checks import check_names, check_object, check_text
from scratchbus.domain.models import CheckedBy, Given
from scratchbus.domain.observation import Observation
from scratchbus.domain.position import Position
from scratchbus.domain.time_checks import as_time
from scratchbus.domain.values import Moment, check_confidence, millis
from scratchbus.errors import InvalidField, UnknownField, key_text, shown
from scratchbus.projections import scratch_page
from scratchbus.projections.page_in_memory import PageInMemory
from scratchbus.projections.stored_observation import AnyObservation

After = Observation | Position | str | None
"""The last item of a list that is continued: the observation, its position, or its id."""


def _tags(value: Any) -> tuple[str, ...]:
    return tuple(check_names("tags", value) or ())


class Filter(Given):
    """The filters of a list. All given ones must match, and every entry of `tags`, `context` and `metadata`.

    `confidence` is the minimum. `waiting` selects reminders that wait for an event, `is_open` open observations.
    """

    type: Annotated[str | None, CheckedBy(partial(check_text, "type"))] = None
    status: Annotated[frozenset[str] | None, CheckedBy(partial(check_names, "status"))] = None
    owner: Annotated[str | None, CheckedBy(partial(check_text, "owner"))] = None
    source: Annotated[str | None, CheckedBy(partial(check_text, "source"))] = None
    tags: Annotated[tuple[str, ...], CheckedBy(_tags)] = ()
    text: Annotated[str | None, CheckedBy(partial(check_text, "text"))] = None
    context: Annotated[dict[str, Any] | None, CheckedBy(partial(check_object, "context"))] = None
    metadata: Annotated[dict[str, Any] | None, CheckedBy(partial(check_object, "metadata"))] = None
    confidence: Annotated[float | None, CheckedBy(check_confidence)] = None
    since: Annotated[datetime | None, CheckedBy(partial(as_time, "since"))] = None
    waiting: bool = False
    is_open: bool = False

    def indexes(self) -> list[tuple[str, str]]:
        """Return the indexes to intersect: they contain all matches, and others."""
        names = [("tag", tag) for tag in self.tags]
        if self.type is not None:
            names.append(("type", self.type))
        if self.owner is not None:
            names.append(("owner", self.owner))
        if self.waiting:
            names.append(scratch_page.WAITING)
        return names

    def matches(self, observation: AnyObservation) -> bool:
        """Return whether an observation matches."""
        return (
            (self.type is None or observation.type == self.type)
            and (self.status is None or observation.status in self.status)
            and (self.owner is None or observation.owner == self.owner)
            and (self.source is None or observation.source == self.source)
            and all(tag in observation.tags for tag in self.tags)
            and (self.text is None or self.text.casefold() in observation.content.casefold())
            and (self.context is None or _has_all(observation.context, self.context))
            and (self.metadata is None or _has_all(observation.metadata, self.metadata))
            and (self.confidence is None or observation.confidence >= self.confidence)
            and (self.since is None or observation.added_ms >= millis(self.since))
            and (not self.is_open or observation.status_class == "open")
            and (not self.waiting or (observation.status_class == "open" and observation.remind_on is not None))
        )


def _has_all(values: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    return all(name in values and _is_same(values[name], value) for name, value in expected.items())


def _is_same(value: Any, expected: Any) -> bool:
    """Return whether two values are the same in JSON, where true is not 1."""
    if value != expected:
        return False
    match value:
        case dict():
            return all(_is_same(each, expected[name]) for name, each in value.items())
        case list():
            return all(map(_is_same, value, expected))
    return isinstance(value, bool) == isinstance(expected, bool)


class FilterKeywords(TypedDict, total=False):
    """The filters of `list` and `count`, as keywords; `Page.list` says what each selects."""

    type: str | None
    status: str | Collection[str] | None
    owner: str | None
    source: str | None
    tags: str | Sequence[str] | None
    text: str | None
    context: Mapping[str, Any] | None
    metadata: Mapping[str, Any] | None
    confidence: float | None
    since: Moment | None


def filter_of(filters: Mapping[str, Any] | None, keywords: FilterKeywords) -> Filter:
    """Return the filter given as a mapping, as keywords, or both. Raises InvalidField or UnknownField."""
    return Filter.parse(keywords_of(filters or {}, _checked(keywords)))


def list_arguments(
    filters: Mapping[str, Any] | None, keywords: FilterKeywords, limit: int | None, after: After
) -> tuple[Filter, int | None, After]:
    """Return the filter of a `list`, with its `limit` and `after`, which may be in the mapping too.

    Raises InvalidField or UnknownField.
    """
    arguments = {**_checked(keywords), "limit": limit, "after": after}
    if filters is not None:
        arguments = keywords_of(filters, arguments)
    return Filter.parse(arguments), arguments["limit"], arguments["after"]


def _checked(keywords: FilterKeywords) -> dict[str, Any]:
    """Return all filters by name, None for those that are not given. Raises UnknownField."""
    defaults: dict[str, Any] = dict.fromkeys(FilterKeywords.__annotations__)
    for name in keywords:
        if name not in defaults:
            raise UnknownField(name, defaults)
    return {**defaults, **keywords}


def keywords_of(filters: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords of a `list` whose filters were given as a mapping; keywords override those in the mapping.

    Raises InvalidField or UnknownField.
    """
    keywords = {name: value for name, value in arguments.items() if name not in ("self", "filters")}
    if not isinstance(filters, Mapping):
        raise InvalidField("filters", f"{shown(filters)} is not a mapping; write list(type=…)")
    for name in filters:
        if name not in keywords:
            raise UnknownField(key_text(name), keywords)
    defaults = {"limit": 100, "stale_ok": False}
    overrides = {name: value for name, value in keywords.items() if value is not None and value != defaults.get(name)}
    return {**keywords, **filters, **overrides}


def matching(page: PageInMemory, criteria: Filter, limit: int | None, below_seq: int | None) -> list[Observation]:
    """Return the matching observations of a page in memory, newest first; with `below_seq`, those added before it."""
    return [*map(page.as_observation, _stored_matches(page, criteria, limit, below_seq))]


def count_matching(page: PageInMemory, criteria: Filter, limit: int | None, below_seq: int | None) -> int:
    """Return how many observations `matching` returns, without making models of them."""
    return sum(1 for _ in _stored_matches(page, criteria, limit, below_seq))


def _stored_matches(
    page: PageInMemory, criteria: Filter, limit: int | None, below_seq: int | None
) -> Iterator[AnyObservation]:
    found = page.walk(criteria.indexes(), below_seq)
    if criteria.since is not None:
        start = millis(criteria.since)
        found = takewhile(lambda observation: observation.added_ms >= start, found)
    return islice(filter(criteria.matches, found), limit)
