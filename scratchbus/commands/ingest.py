"""Assert the facts in a text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Annotated, Any, ClassVar

from pydantic import Field

from scratchbus.commands.execution import Occasion
from scratchbus.commands.facts import AssertFact, assert_all, earlier_facts, name_triplet
from scratchbus.domain.checks import check_evidence, check_label, check_text
from scratchbus.domain.facts import Fact
from scratchbus.domain.knowledge import Triplet
from scratchbus.domain.models import CheckedBy, EventId, Given
from scratchbus.domain.relation_registry import RelationRegistry
from scratchbus.domain.schedule import varying_times
from scratchbus.domain.time_checks import as_time
from scratchbus.domain.values import check_confidence
from scratchbus.engine.steps import Fetch, Step
from scratchbus.errors import InvalidField, InvalidInput, TooLarge, shown
from scratchbus.eventlog.writes import MAX_BATCH
from scratchbus.readmodel.relations_in_force import relations_for
from scratchbus.readmodel.scope import Core

_ARROW = re.compile(r"\s*->\s*")
_MARKS = "-*•> \t"  # the beginnings of list items and quotes
_KEY = re.compile(r"([^:]{1,64}):\s+(\S.*)")


def _extractor(extractor: object) -> object:
    if not callable(extractor):
        raise InvalidField("extractor", f"{shown(extractor)} cannot be called; pass a function that returns triplets")
    return extractor


class Ingest(Given):
    """A text, and how to read it."""

    verb: ClassVar[str] = "ingest"
    text: Annotated[str, CheckedBy(partial(check_text, "text"))]
    extractor: Annotated[Any, CheckedBy(_extractor)] = None
    subject: Annotated[str | None, CheckedBy(partial(check_label, "subject"))] = None
    valid_at: Annotated[datetime | None, CheckedBy(partial(as_time, "valid_at"))] = None
    confidence: Annotated[float, CheckedBy(check_confidence)] = 1.0
    evidence: Annotated[list[str], CheckedBy(check_evidence)] = Field([])
    event_id: EventId = None


def ingest(core: Core, page: str, arguments: Mapping[str, Any]) -> Step[list[Fact]]:
    """Assert the triplets that an extractor finds in a text.

    A retry is recognised by the text: an extractor may find different triplets in each call.
    """
    command = Ingest.parse(arguments)
    retry_arguments = command.text, command.subject, command.valid_at, command.confidence, command.evidence
    occasion = Occasion.of(core, page, command.event_id, command.verb, *retry_arguments)
    if command.event_id is not None and (earlier := (yield from earlier_facts(core, occasion))) is not None:
        return earlier
    if command.extractor is None:
        found: list[Any] = lines(command.text, (yield from relations_for(core)), command.subject)
    else:
        found = yield Fetch(partial(_call, command.extractor, command.text))
    if len(found) > MAX_BATCH:
        raise TooLarge("text", len(found), MAX_BATCH, "triplets", "split the text")
    common = {"valid_at": command.valid_at, "confidence": command.confidence, "evidence": command.evidence}
    commands = []
    for index, each in enumerate(found):
        try:
            commands.append(AssertFact.parse(_fields_of(each) | common))
        except InvalidInput as error:
            raise name_triplet(error, index, len(found)) from None
    return (yield from assert_all(core, page, commands, occasion, varying_times(command.__dict__)))


def _call(extractor: Any, text: str) -> list[Any]:
    found = extractor(text)
    if not isinstance(found, Iterable) or isinstance(found, str | bytes | Mapping):
        raise InvalidField("extractor", f"returned {shown(found)}, which is not a list of triplets")
    return list(found)


def _fields_of(triplet: object) -> dict[str, Any]:
    """Return a triplet's parts by name. Raises InvalidField."""
    if isinstance(triplet, Mapping):
        return {name: triplet.get(name) for name in Triplet._fields}
    if isinstance(triplet, tuple | list) and 3 <= len(triplet) <= len(Triplet._fields):
        return Triplet(*triplet)._asdict()
    raise InvalidField("extractor", f"returned {shown(triplet)}, which is not (subject, relation, object)")


def lines(text: str, relations: RelationRegistry, subject: str | None = None) -> list[Triplet]:
    """Return the triplets of the lines `A -> relation -> B`, and of `key: value` about a subject.

    Parts may be in square brackets, and a line may begin like a list item. A line whose key is not a relation is
    ignored.
    """
    found = []
    for line in text.splitlines():
        plain = line.strip().lstrip(_MARKS).strip()
        parts = [part.strip().removeprefix("[").removesuffix("]").strip() for part in _ARROW.split(plain)]
        if len(parts) == 3 and all(parts):
            found.append(Triplet(parts[0], parts[1], parts[2], plain))
        elif subject is not None and (match := _KEY.fullmatch(plain)) and relations.knows(match[1]):
            found.append(Triplet(subject, match[1].strip(), match[2].strip(), plain))
    return found
