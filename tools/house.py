"""Measure the house: its size, its rooms, and how many of them one `add` and one `active` pass through.

`make house` prints the table; with `--steps`, this also prints every function that they pass, in order.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

from scratchbus import Bus

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "scratchbus"


def passed(action: Callable[[], object]) -> tuple[int, int, int]:
    """Return how many functions and modules of scratchbus an action passes, and how often the module changes."""
    steps: list[tuple[str, str]] = []

    def see(frame: FrameType, kind: str, argument: Any) -> None:
        file = frame.f_code.co_filename
        if kind == "call" and file.startswith(str(PACKAGE)):
            steps.append((file, frame.f_code.co_qualname))

    sys.setprofile(see)
    try:
        action()
    finally:
        sys.setprofile(None)
    changes = sum(one[0] != next_[0] for one, next_ in pairwise(steps))
    if "--steps" in sys.argv:
        for file, name in steps:
            print(f"    {Path(file).relative_to(PACKAGE)}: {name}")
    return len(set(steps)), len({file for file, _ in steps}), changes


def paths() -> dict[str, tuple[int, int, int]]:
    """Measure one `add`, and one `active` with two events to fold, on the in-process engine, once all is warm."""
    with Bus.connect("memory://house", source="house") as bus:
        page = bus.page()
        for _ in range(3):
            page.add("observation", "warm")
            page.active()
        add = passed(lambda: page.add("risk_alert", "measured", tags=["security"], ttl="2h", confidence=0.9))
        bus.rebuild()
        page.active()
        page.add("observation", "one")
        page.add("observation", "two")
        return {"one page.add": add, "one active with two events to fold": passed(page.active)}


def main() -> None:
    """Print the table."""
    python = sorted(PACKAGE.rglob("*.py"))
    lua = sorted(PACKAGE.rglob("*.lua"))
    by_file = {file: file.read_text("utf-8") for file in (*python, *lua)}
    generated = [file for file in python if "tools/generate_blocking.py" in by_file[file]]
    lines = {file: text.count("\n") for file, text in by_file.items()}
    classes = Counter[str]()
    for file in set(python) - set(generated):
        classes.update({node.name for node in ast.walk(ast.parse(by_file[file])) if isinstance(node, ast.ClassDef)})
    errors = sum(
        isinstance(node, ast.ClassDef)
        for file in python
        if file.parent.name == "errors"
        for node in ast.walk(ast.parse(by_file[file]))
    )
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    stems = Counter(file.stem for file in python if file.stem not in ("__init__", "__main__"))
    rows: list[tuple[str, object]] = [
        ("lines", f"{sum(lines.values()):,} ({sum(lines[file] for file in lua):,} of them Lua)"),
        ("lines that are generated", f"{sum(lines[file] for file in generated):,}"),
        ("modules", len(python)),
        ("modules at the top", sum(file.parent == PACKAGE for file in python)),
        ("error classes", errors),
        ("layers", len(layers)),
    ]
    rows += [
        (name, f"{functions} functions, {modules} modules, {changes} changes of module")
        for name, (functions, modules, changes) in paths().items()
    ]
    rows.append(("module names used twice", ", ".join(f"{name} ×{n}" for name, n in sorted(stems.items()) if n > 1)))
    rows.append(("class names used twice", ", ".join(f"{name} ×{n}" for name, n in sorted(classes.items()) if n > 1)))
    for name, value in rows:
        print(f"{name:36}{value}")


if __name__ == "__main__":
    main()
