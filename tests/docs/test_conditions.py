"""The list of test conditions names tests that exist, at least one for each condition."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from tests.docs.markdown import ROOT, codes, rows

TESTS = ROOT / "tests"
PROMISES = [f"P{number}" for number in range(1, 11)]

_CONDITIONS = list(rows((ROOT / "docs" / "test-conditions.md").read_text("utf-8")))
_README = list(rows((ROOT / "README.md").read_text("utf-8"), "## Promises"))


@cache
def _tests_in(file: Path) -> frozenset[str]:
    nodes = ast.parse(file.read_text("utf-8")).body
    nodes += [inner for node in nodes if isinstance(node, ast.ClassDef) for inner in node.body]
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_named_test_exists():
    missing = []
    for row in [*_CONDITIONS, *_README]:
        named = [code.partition("::") for code in codes(row[-1])]
        assert named, f"no test is named for {row[0]}: {row[1]}"
        for file, _, name in named:
            is_test = name.startswith("test_") and (TESTS / file).is_file()
            if not is_test or name not in _tests_in(TESTS / file):
                missing.append(f"{row[0]}: {file}::{name}")
    assert missing == []


def test_promises_and_numbers_are_complete():
    names = [row[0] for row in _CONDITIONS]
    assert list(dict.fromkeys(name for name in names if name.startswith("P"))) == PROMISES
    assert [row[0] for row in _README] == PROMISES
    for letter in "SB":
        numbers = [name for name in names if name.startswith(letter)]
        assert numbers == [f"{letter}{number}" for number in range(1, len(numbers) + 1)]
