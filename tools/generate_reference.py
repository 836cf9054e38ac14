"""Write docs/reference.md, the list of all public names, from their docstrings.

`make generate` writes it, and `make check` fails when it is stale.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator

from tools.generated import ROOT, write_or_check

FILE = ROOT / "docs" / "reference.md"

HEAD = """\
# Reference

Every public name with the first sentence of its docstring, written by `make generate`. `help(scratchbus.Page.add)`
shows the rest: arguments, units, errors. What is not listed here may change in any release. Names that begin with
`Async` have the same methods as those without, to be awaited, and are not described twice.
"""

MODULES = {
    "scratchbus": "The bus, its pages, and what agents remember.",
    "scratchbus.daemon": "What a daemon needs around its work.",
    "scratchbus.settings": "The settings and their defaults.",
    "scratchbus.errors": "All errors derive from `ScratchbusError`.",
}

WITH_METHODS = {
    "Bus", "Contexts", "Delivery", "Items", "Job", "McpTokens", "Notepad", "Notes", "Page", "PastPage", "Preferences",
    "Run", "WorkspaceSync",
    "Scratchpad", "Subscription", "Todo", "View", "Work",
}  # fmt: skip
"""The classes that programs call; of the others, the fields are what matters, and their docstrings have those."""

INTERNAL = {"JobState", "DeliveryState"}
"""Bases whose properties are public, and whose methods are not."""

WITHOUT_DOCSTRING = {
    "AnyEvent": "The union of all kinds of events, for `match` and type checkers.",
    "EVENT_KINDS": "The names of all kinds of events.",
    "events": "The module that has a class for each kind of event.",
    "daemon.counts": "The counters and durations of this process, which the metrics show.",
    "daemon.DaemonRun": "The type of a daemon's work: a function of a bus, a page name and an event set to stop it.",
    "Duration": 'The type of a length of time: `"2h"`, `"never"`, a number of seconds, or a timedelta.',
    "Moment": 'The type of a point in time: a datetime, or a text such as `"14:02"` or `"in 5 minutes"`.',
    "When": "The type of a point in the log: a position or its text, or a time.",
    "Extractor": "The type of a function that returns the triplets in a text.",
    "daemon.Entries": "The type of a YAML list with at least one item.",
    "daemon.Items": "The type of a YAML list.",
    "daemon.JsonTable": "The type of a YAML mapping of JSON values.",
    "daemon.Table": "The type of a YAML mapping from one type to another.",
    "daemon.Text": "The type of a YAML scalar as text.",
    "TOKEN_SCOPES": "The scopes that a token can have for the HTTP API.",
    "daemon.TypeName": "The type of a YAML scalar that names a type, status or lifecycle.",
}


def first_sentence(value: object) -> str:
    """Return the first sentence of a docstring, on one line."""
    text = " ".join((inspect.getdoc(value) or "").split())
    found = re.match(r"(.+?\.)(?:\s|$)", text)
    return (found[1] if found else text).replace("|", "\\|")


def error_row(name: str, error: type) -> str:
    """Return the row of an error, with the public classes above it."""
    above = [base for base in error.__bases__ if not base.__name__.startswith("_")]
    above = above or [base for base in error.__mro__[1:] if not base.__name__.startswith("_")][:1]
    return f"| `{name}` | {', '.join(f'`{base.__name__}`' for base in above)} | {first_sentence(error)} |"


def methods(cls: type) -> Iterator[tuple[str, object]]:
    """Yield the public methods and properties of a class, in their order."""
    homes = {name: base for base in reversed(cls.__mro__[:-1]) for name in vars(base)}
    for name, home in homes.items():
        value = getattr(vars(home)[name], "__func__", vars(home)[name])
        is_method = inspect.isfunction(value) and home.__name__ not in INTERNAL and name != "converse"
        if not name.startswith("_") and (is_method or isinstance(value, property)):
            yield name, value


def rows(module: str, name: str, value: object) -> Iterator[str]:
    """Yield the rows of a public name: its own, and one for each of its methods."""
    known = WITHOUT_DOCSTRING.get(f"{module}.{name}".removeprefix("scratchbus."))
    about = f"`{value!r}`" if isinstance(value, int) else known or first_sentence(value)
    yield f"| `{name}` | {about} |"
    if inspect.isclass(value) and name in WITH_METHODS:
        for method, each in methods(value):
            brackets = "" if isinstance(each, property) else "()"
            yield f"| &emsp;`.{method}{brackets}` | {first_sentence(each)} |"


def reference() -> str:
    """Return the whole page."""
    parts = [HEAD]
    for module_name, about in MODULES.items():
        module = importlib.import_module(module_name)
        public = getattr(module, "__all__", None) or [
            name for name, each in vars(module).items() if getattr(each, "__module__", "").startswith(module_name)
        ]
        names = sorted((name for name in public if not name.startswith(("Async", "_"))), key=str.lower)
        parts.append(f"## `{module_name}`\n\n{about}\n")
        if module_name == "scratchbus.errors":
            parts.append("| error | is a | when |\n|---|---|---|")
            parts += [
                error_row(name, getattr(module, name)) for name in names if inspect.isclass(getattr(module, name))
            ]
        else:
            parts.append("| name | |\n|---|---|")
            parts += [row for name in names for row in rows(module_name, name, getattr(module, name))]
        parts.append("")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(write_or_check({FILE: reference()}))
