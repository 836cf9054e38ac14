"""The table of errors lists every class with its exit code, base classes first."""

from __future__ import annotations

import inspect

from scratchbus import errors
from scratchbus.daemon import exit_codes
from scratchbus.daemon.exit_codes import exit_code
from scratchbus.errors import ScratchbusError
from tests.docs.markdown import ROOT, codes, rows

_ROWS = list(rows((ROOT / "docs" / "integration.md").read_text("utf-8"), "## Errors"))
_CLASSES = {
    name: found
    for name, found in inspect.getmembers(errors, inspect.isclass)
    if issubclass(found, ScratchbusError) and not name.startswith("_")
}


def test_every_error_class_has_a_row():
    assert sorted(codes(row[0])[0] for row in _ROWS) == sorted(_CLASSES)


def test_documented_exit_codes_match_the_code():
    real = {name: str(exit_code(ScratchbusError.__new__(found))) for name, found in _CLASSES.items()}
    assert {codes(row[0])[0]: row[3] for row in _ROWS} == real


def test_documented_attributes_exist():
    for row in _ROWS:
        family = [one for one in _CLASSES[codes(row[0])[0]].__mro__ if issubclass(one, ScratchbusError)]
        source = "".join(inspect.getsource(one) for one in family)
        for name in codes(row[1]):
            if name.startswith("."):
                assert f"self{name} = " in source, f"{row[0]}{name}"


def test_a_class_comes_after_its_base():
    order = [codes(row[0])[0] for row in _ROWS]
    for name in order:
        for above in _CLASSES[name].__mro__[1:]:
            if above.__name__ in order:
                assert order.index(above.__name__) < order.index(name), name


def test_the_tour_lists_the_same_exit_codes():
    names = {"internal": "INTERNAL", "usage": "USAGE", "not found": "NOT_FOUND", "conflict": "CONFLICT",
             "invalid input": "INVALID_INPUT", "engine": "ENGINE", "Ctrl-C": "INTERRUPTED"}  # fmt: skip
    tour = " ".join((ROOT / "docs" / "tour.md").read_text("utf-8").split())
    listed = ", ".join(f"{getattr(exit_codes, name)} {word}" for word, name in names.items())
    assert f"Exit codes: 0 fine, {listed}" in tour
