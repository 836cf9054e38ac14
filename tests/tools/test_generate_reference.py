"""The list of public names describes what a name stands for in its module."""

from __future__ import annotations

import scratchbus
import scratchbus.daemon
from tools.generate_reference import FILE, first_sentence, rows


def test_a_class_is_described_by_its_docstring_though_another_module_has_its_name():
    described = next(rows("scratchbus", "Items", scratchbus.Items))
    assert described == f"| `Items` | {first_sentence(scratchbus.Items)} |"
    assert "YAML" in next(rows("scratchbus.daemon", "Items", scratchbus.daemon.Items))


def test_every_name_is_described():
    assert [line for line in FILE.read_text(encoding="utf-8").splitlines() if line.endswith("|  |")] == []
