"""A small YAML file cannot expand into a huge value."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from daemons.rules import parse_rules
from daemons.tools import parse_tools
from scratchbus.daemon import Items, Text, YamlModel, YamlText
from scratchbus.domain.registry_yaml import parse_registry
from scratchbus.errors import InvalidInput, RegistryError
from scratchbus.settings import load_settings


def bomb(key: str) -> str:
    """Return a kilobyte of YAML that expands to 10 ** 12 entries."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    return "\n".join(["types:", "  t:", f"    {key}:", *(f"      {line}" for line in lines)])


def settings(text: str, tmp_path: Path) -> object:
    file = tmp_path / "scratchbus.yaml"
    file.write_text(text)
    return load_settings(file)


class Uses(YamlModel):
    """A file with a list and its uses."""

    base: Items[Text]
    uses: Items[Items[Text]]


READERS: dict[str, Callable[[str, Path], object]] = {
    "registry": lambda text, _: parse_registry(text, "types"),
    "rules": lambda text, _: parse_rules(text, "rules"),
    "tools": lambda text, _: parse_tools(text, "tools", ()),
    "settings": settings,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reader", "key"),
    [
        ("registry", "context"),
        ("registry", "metadata"),
        ("registry", "lifecycle"),
        ("rules", "context"),
        ("tools", "context"),
        ("settings", "context"),
    ],
)
def test_aliases_of_aliases_are_refused(reader: str, key: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"alias"):
        READERS[reader](bomb(key), tmp_path)


@pytest.mark.parametrize(("uses", "is_refused"), [(100, False), (101, True)])
def test_aliases_repeat_at_most_a_hundred_thousand_values(uses: int, is_refused: bool) -> None:
    text = f"base: &b [{', '.join(['x'] * 999)}]\nuses: [{', '.join(['*b'] * uses)}]\n"  # 1,000 values each
    if is_refused:
        with pytest.raises(InvalidInput, match=r"uses\[100\]: its aliases repeat more than 100,000 values"):
            YamlText(text, "file", RegistryError).read(Uses)
    else:
        assert len(YamlText(text, "file", RegistryError).read(Uses).uses) == uses


def test_a_few_aliases_are_accepted() -> None:
    text = "types:\n  a: &a\n    context: &c {properties: {x: {type: string}}}\n  b: *a\n  c: {context: *c}\n"
    registry = parse_registry(text, "types")
    assert {kind.name for kind in registry.types.values()} == {"a", "b", "c"}


@pytest.mark.parametrize("text", ["types: &t\n  a: *t\n", "types: {a: &a {context: {x: *a}}}"])
def test_a_self_referencing_alias_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="alias"):
        parse_registry(text, "types")


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(InvalidInput, match="deep"):
        parse_registry("types: " + "[" * 100_000, "types")


@pytest.mark.parametrize("value", ["!!bool 5", "!!int ''", "!!float ''"])
def test_a_tag_that_does_not_fit_its_value_is_refused(value: str) -> None:
    with pytest.raises(InvalidInput, match=f"types:3:.*is not a {value.split()[0][2:]}"):
        parse_registry(f"types:\n  x:\n    priority: {value}\n", "types")
