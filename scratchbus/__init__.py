"""The shared working memory of daemons and agents, kept as one event log on Redis Streams.

The public names are listed in `__init__.pyi`, for type checkers and for this module. Each is imported when it is first
used, because `scratchbus --help` needs none of them.
"""

import re

_NAME = re.compile(r"^from (\S+) import (\w+) as (\w+)$", re.MULTILINE)

with open(f"{__file__.removesuffix('.py')}.pyi", encoding="utf-8") as _stub:
    _HOMES = {name: (home, own) for home, own, name in _NAME.findall(_stub.read())}

__all__ = sorted(_HOMES)  # type checkers read the stub


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home, own = _HOMES[name]
    value = globals()[name] = getattr(__import__(home, fromlist=[own]), own)
    return value


def __dir__() -> list[str]:
    """Return the public names, also those that are not imported yet."""
    return [*globals(), *(name for name in __all__ if name not in globals())]
