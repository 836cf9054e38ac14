"""The rules of a router: how urgency changes with time, and what holds while an alert is active (`config/router.yaml`).

pace:
  pending_confirmation: grows
modes:
  - name: fraud
    while: {type: risk_alert, tags: [fraud]}
    for: {tags: [financial]}
    then: verify
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from scratchbus import Observation, check_confidence, urgency
from scratchbus.daemon import Items, Table, Text, TypeName, YamlModel, YamlProblem, YamlText
from scratchbus.errors import RulesError
from scratchbus.settings import read_text

HALF_LIFE = timedelta(days=1)
"""The time in which a fading urgency halves, or the gap of a growing one to 100."""

Pace = Literal["fades", "stays", "grows"]


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise YamlProblem("{} is not a number from 0 to 100")
    return value


class Match(YamlModel):
    """Observations of a type, with all of these tags, and at least this confidence; all may be left out."""

    type: TypeName | None = None
    tags: Items[Text] = ()
    confidence: Annotated[float, BeforeValidator(check_confidence)] = 0.0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.type is None and not self.tags:
            raise YamlProblem("needs a type or tags; without any it would match everything")
        return self

    def fits(self, observation: Observation) -> bool:
        """Return whether an observation is one of these, whatever its status is."""
        is_kind = self.type in (None, observation.type) and set(self.tags).issubset(observation.tags)
        return is_kind and observation.confidence >= self.confidence


class Mode(YamlModel):
    """The rule for some observations `while` another one is active.

    They are ranked up by `up` (in the file: `raise`), and `then` changes how they are acted on: "verify", a
    confirmation first; "hold", nothing at all.
    """

    name: Text
    during: Match = Field(alias="while")
    concerned: Match = Field(alias="for")
    up: Annotated[float, BeforeValidator(_number), Field(ge=0, le=100, alias="raise")] = 0.0
    then: Literal["verify", "hold"] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.up and self.then is None:
            raise YamlProblem("changes nothing; give raise, then, or both")
        return self

    def concerns(self, observation: Observation, alert: Observation) -> bool:
        """Return whether it holds for an observation because of an alert."""
        return observation.id != alert.id and self.concerned.fits(observation)


class RouterRules(YamlModel):
    """The pace of each type, and the modes."""

    pace: Table[TypeName, Pace] = Field({})
    modes: Items[Mode] = ()

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        seen = set()
        for index, mode in enumerate(self.modes):
            if mode.name in seen:
                problem = f"{mode.name!r} is the name of two modes; suggestions tell them apart by it"
                raise YamlProblem(problem, at=("modes", index, "name"))
            seen.add(mode.name)
        return self

    @property
    def types(self) -> set[str]:
        """The types that the rules name."""
        matches = [match for mode in self.modes for match in (mode.during, mode.concerned)]
        return {*self.pace, *(match.type for match in matches if match.type is not None)}

    def urgency(self, observation: Observation, now: datetime) -> float:
        """Return how urgent an observation is at a time, from 0 to 100, without any mode.

        Before a reminder is due it is not urgent at all; from then on, and if its type says so, an urgency grows: the
        gap to 100 halves with each half-life. When a reminder falls due, it halves at once.
        """
        first = urgency(observation, observation.updated_at)  # before it changes with time
        pace = self.pace.get(observation.type, "fades")
        if observation.remind_at is not None or observation.remind_on is not None:
            return 0.0
        if observation.due_at is not None:
            return _grown(first, now - observation.due_at + HALF_LIFE)
        if pace == "fades":
            return urgency(observation, now, HALF_LIFE)
        return first if pace == "stays" else _grown(first, now - observation.created_at)


def _grown(first: float, age: timedelta) -> float:
    if first == 0:
        return 0.0
    return 100 - (100 - first) * math.exp2(-max(age, timedelta(0)) / HALF_LIFE)


def read_router_rules(path: Path) -> RouterRules:
    """Return the rules in a YAML file. Raises RulesError, which names the line, the key, and what is allowed."""
    return parse_router_rules(read_text(path, RulesError), str(path))


def parse_router_rules(text: str, file: str) -> RouterRules:
    """Return the rules in a YAML text; errors call it `file`. Raises RulesError."""
    return YamlText(text, file, RulesError).read(RouterRules)
