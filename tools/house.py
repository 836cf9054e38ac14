"""Measure the house: its size, its rooms, and how many of them one `add` and one `active` pass through.

`make house` prints the table beside what is aimed at; with `--steps`, this also prints every function that they pass,
in order. Lines include type stubs and Lua; the reference daemons have a row of their own.
"""

from __future__ import annotations

import ast
import builtins
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable
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
            page.add("observation", "warm", ttl="2h")
            page.active()
        add = passed(lambda: page.add("risk_alert", "measured", tags=["security"], ttl="2h", confidence=0.9))
        bus.rebuild()
        page.active()
        page.add("observation", "one")
        page.add("observation", "two")
        return {"one page.add": add, "one active with two events to fold": passed(page.active)}


def lines_of(files: Iterable[Path]) -> int:
    """Return the lines of these files."""
    return sum(file.read_text("utf-8").count("\n") for file in files)


def twice(names: Counter[str]) -> str:
    """Return the names that occur more than once, each with how often."""
    return ", ".join(f"{name} ×{count}" for name, count in sorted(names.items()) if count > 1) or "none"


def errors_among(classes: Iterable[ast.ClassDef]) -> set[str]:
    """Return the names of the classes that are exceptions."""
    bases = {node.name: {ast.unparse(base).rpartition(".")[2] for base in node.bases} for node in classes}
    errors = {name for name, each in vars(builtins).items() if isinstance(each, type) and issubclass(each, Exception)}
    while more := {name for name, above in bases.items() if above & errors} - errors:
        errors |= more
    return errors & bases.keys()


def main() -> None:
    """Print the table."""
    python, lua, daemons = (
        sorted(ROOT.glob(each)) for each in ("scratchbus/**/*.py", "scratchbus/**/*.lua", "daemons/**/*.py")
    )
    stubs = sorted(PACKAGE.rglob("*.pyi"))
    generated = [file for file in python if "tools/generate_blocking.py" in file.read_text("utf-8")]
    trees = {file: ast.parse(file.read_text("utf-8")) for file in python}
    classes = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    modules = Counter(file.stem for file in python if file.stem not in ("__init__", "__main__"))
    written = lines_of([*python, *lua, *stubs]) - lines_of(generated)
    rows: list[tuple[str, object, object]] = [
        ("lines of the library", f"{written + lines_of(generated):,}", "25,000"),
        ("  written by hand", f"{written:,}, {lines_of(lua):,} of them Lua, {lines_of(stubs):,} stubs", ""),
        ("  generated", f"{lines_of(generated):,}", ""),
        ("lines of the daemons", f"{lines_of(daemons):,}", ""),
        ("modules", len(python), ""),
        ("modules at the top", sum(file.parent == PACKAGE for file in python), 8),
        ("error classes", len(errors_among(classes)), ""),
        ("layers", len(layers), "about 10"),
    ]
    aims = ("25, 9, 18", "25, 9, 20")
    rows += [
        (f"{name}: functions, modules, changes of module", ", ".join(map(str, measured)), aim)
        for (name, measured), aim in zip(paths().items(), aims, strict=True)
    ]
    for name, value, aim in rows:
        print(f"{name:70}{value!s:40}{aim}")
    print(f"module names used twice: {twice(modules)}")
    print(f"class names used twice: {twice(Counter(node.name for node in classes))}")


if __name__ == "__main__":
    main()
