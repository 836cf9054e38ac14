"""The rules of an evaluator: when an observation is complete, and when it is doubtful (`config/completion.yaml`).

complete:
  risk_alert:
    - outcome: done
      quiet_for: 10m
review:
  confidence_below: 0.3
"""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import structlog
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from scratchbus import Bus, Observation, check_confidence, duration_ms
from scratchbus.daemon import Entries, Items, JsonTable, Table, Text, TypeName, YamlModel, YamlProblem, YamlText
from scratchbus.errors import RulesError
from scratchbus.settings import read_text

Outcome = Literal["done", "notified", "failed", "pending"]
"""The outcome of an action: done, someone notified, failed, or pending until its end is reported."""

OUTCOME = "outcome"
"""The metadata of a suggestion that holds the outcome of its action."""

_PARTS = ("context", "metadata")

logger = structlog.get_logger(__name__)


def _duration(value: Any) -> timedelta:
    ms = duration_ms(value)
    if ms is None:
        raise YamlProblem("must be a duration such as 90s, 2h or 7d")
    return timedelta(milliseconds=ms)


def _field(name: str) -> str:
    part, _, key = name.partition(".")
    if name not in ("owner", "confidence") and (part not in _PARTS or not key):
        raise YamlProblem(f"{name!r} is not a usable field; use context.<key>, metadata.<key>, owner or confidence")
    return name


FieldName = Annotated[Text, AfterValidator(_field)]


def value_of(observation: Observation, name: str) -> Any:
    """Return the value of a field such as `context.task_id`, or None if there is none."""
    part, _, key = name.partition(".")
    value = getattr(observation, part)
    return value.get(key) if key else value


class Sign(YamlModel):
    """Another observation as evidence: of this type, with these tags, and with equal values in the fields `same`."""

    type: TypeName
    tags: Items[Text] = ()
    same: Annotated[Entries[FieldName], BeforeValidator(lambda given: [given] if isinstance(given, str) else given)]

    def key(self, observation: Observation) -> str:
        """Return the values that must be equal, as a text; "" if any is missing."""
        values = [value_of(observation, name) for name in self.same]
        return "" if None in values else json.dumps(values, sort_keys=True, default=str)


class CompletionRule(YamlModel):
    """The conditions for an observation to be complete: all those given here."""

    outcome: Outcome | None = None
    event: Sign | None = None
    field: Annotated[
        JsonTable, AfterValidator(lambda given: {_field(name): value for name, value in given.items()})
    ] = Field({})
    quiet_for: Annotated[timedelta | None, BeforeValidator(_duration)] = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not (self.outcome or self.event or self.field or self.quiet_for):
            raise YamlProblem("needs an outcome, event, field or quiet_for; without any it would hold for all")
        return self


class ReviewRules(YamlModel):
    """The conditions that make an observation doubtful; None and False are not checked."""

    confidence_below: Annotated[float | None, BeforeValidator(check_confidence)] = None
    contradicted: bool = False
    evidence_gone: bool = False


class CompletionRules(YamlModel):
    """The rules of each type; a type that is not there is completed by hand only."""

    complete: Table[TypeName, Items[CompletionRule]]
    review: ReviewRules = ReviewRules()


def read_completion(path: Path) -> CompletionRules:
    """Return the rules in a YAML file. Raises RulesError, which names the line, the key, and what is allowed."""
    return parse_completion(read_text(path, RulesError), str(path))


def parse_completion(text: str, file: str) -> CompletionRules:
    """Return the rules in a YAML text; errors call it `file`. Raises RulesError."""
    return YamlText(text, file, RulesError).read(CompletionRules)


def warn_of_types(names: Collection[str], bus: Bus, file: Path) -> None:
    """Warn of types in a file of rules that the bus does not know yet; they may be published later."""
    for name in sorted(set(names) - set(bus.types.types)):
        logger.warning("no such type", type=name, file=str(file))
