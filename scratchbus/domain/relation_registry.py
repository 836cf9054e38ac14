"""The relations of facts, and the YAML file that declares them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field

from scratchbus.domain.yaml_model import Items, Table, Text, TypeName, YamlModel, YamlProblem, YamlText
from scratchbus.errors import InvalidField, RelationsError, UnknownRelation, shown

SAME_AS: Final = "same_as"
"""The relation between two names of the same entity. It is built in."""

_SEPARATORS = re.compile(r"[\s_-]+")


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation; `values` says whether a subject has one value at a time or many. `inverse` is "" if it has none."""

    name: str
    description: str = ""
    values: Literal["one", "many"] = "many"
    inverse: str = ""
    symmetric: bool = False
    transitive: bool = False
    aliases: tuple[str, ...] = ()

    @property
    def is_single(self) -> bool:
        """Whether a new value ends the previous one."""
        return self.values == "one"

    def names(self) -> Iterator[tuple[str, str | int | None]]:
        """Yield every name of the relation, and its place in the file: the key, or the index of the alias."""
        yield self.name, None
        if self.inverse:
            yield self.inverse, "inverse"
        for number, alias in enumerate(self.aliases):
            yield alias, number


class NamedRelation(NamedTuple):
    """A relation as one of its names means it: `is_inverse` if that name swaps subject and object."""

    relation: Relation
    is_inverse: bool = False

    @property
    def name(self) -> str:
        """The name under which facts are stored: that of the relation or its inverse, never an alias."""
        return self.relation.inverse if self.is_inverse else self.relation.name


_SAME = Relation(SAME_AS, "The two names mean the same entity.", symmetric=True, transitive=True)


class RelationRegistry:
    """All relations, by all their names; `text` is the YAML that declares them."""

    def __init__(self, relations: Mapping[str, Relation], text: str = "") -> None:
        self.relations = {SAME_AS: _SAME, **relations}
        self.text = text
        self._names = {
            name: NamedRelation(relation, at == "inverse")
            for relation in self.relations.values()
            for name, at in relation.names()
        }

    def find(self, name: object) -> NamedRelation:
        """Return the relation with this name, alias or inverse; spaces, dashes and capitals do not matter.

        Raises UnknownRelation with the nearest name, InvalidField for anything but a text.
        """
        if not isinstance(name, str):
            raise InvalidField("relation", f"{shown(name)} is not a text")
        plain = plain_name(name)
        found = self._names.get(plain)
        if found is None:
            similar = get_close_matches(plain[:64], self._names, n=1, cutoff=0.5)
            raise UnknownRelation(name, self.relations, similar[0] if similar else None)
        return found

    def read(self, name: str) -> NamedRelation:
        """Return the relation of a stored fact; one that is no longer declared has many values."""
        return self._names.get(name) or NamedRelation(Relation(name))

    def knows(self, name: str) -> bool:
        """Return whether a relation has this name."""
        return plain_name(name) in self._names


def plain_name(name: str) -> str:
    """Return the form in which a name is declared: "Depends on" is depends_on."""
    return _SEPARATORS.sub("_", name.strip().casefold())


def _flag(value: Any) -> Any:
    if not isinstance(value, bool):
        raise YamlProblem("{} is neither true nor false")
    return value


def _values(value: Any) -> Any:
    if value not in ("one", "many"):
        raise YamlProblem(f"{shown(value)} is not how many values a subject has", ("one", "many"))
    return value


_Flag = Annotated[bool, BeforeValidator(_flag)]


class _Relation(YamlModel):
    description: Text = ""
    values: Annotated[Literal["one", "many"], BeforeValidator(_values)] = "many"
    inverse: TypeName = ""
    symmetric: _Flag = False
    transitive: _Flag = False
    aliases: Annotated[Items[TypeName], AfterValidator(lambda names: tuple(dict.fromkeys(names)))] = ()


class _RelationsFile(YamlModel):
    relations: Table[TypeName, _Relation] = Field({})

    def registry(self, text: str) -> RelationRegistry:
        """Return the registry. Raises YamlProblem for a name that is declared twice or invalid."""
        if not self.relations:
            raise YamlProblem("there are no relations; write at least one under `relations:`", at=("relations",))
        owners = {SAME_AS: "which is built in"}
        found = {name: Relation(name, **dict(each)) for name, each in self.relations.items()}
        for name, relation in found.items():
            if relation.symmetric and relation.inverse:
                problem = "a symmetric relation is its own inverse; leave out one of the two keys"
                raise YamlProblem(problem, at=("relations", name, "inverse"))
            for relation_name, at in relation.names():
                if relation_name in owners:
                    key = () if at is None else ("aliases", at) if isinstance(at, int) else (at,)
                    problem = (
                        f"{relation_name!r} is already a name of a relation, {owners[relation_name]}; choose another"
                    )
                    raise YamlProblem(problem, at=("relations", name, *key))
                owners[relation_name] = f"of {name!r}"
        return RelationRegistry(found, text)


@lru_cache(maxsize=16)
def parse_relations(text: str, file: str) -> RelationRegistry:
    """Return the relations that a YAML text declares; `file` is its name in errors.

    Raises RelationsError with the file, the line, the key and the allowed values.
    """
    source = YamlText(text, file, RelationsError)
    try:
        return source.read(_RelationsFile).registry(text)
    except YamlProblem as problem:
        raise source.wrong(problem) from None
