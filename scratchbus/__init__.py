"""The shared working memory of daemons and agents, kept as one event log on Redis Streams.

The public names are listed in `__init__.pyi`, for type checkers and for this module. Each is imported when it is first
used, since `scratchbus --help` needs none of them.
"""

import re
import sys

_NAME = re.compile(r"^from (\S+) import (\w+) as (\w+)$", re.MULTILINE)


def _lazily(package, file):  # type checkers read the stub
    """Return the homes of a package's public names, by its stub, and its `__getattr__` and `__dir__`."""
    with open(f"{file.removesuffix('.py')}.pyi", encoding="utf-8") as stub:
        homes = {name: (home, own) for home, own, name in _NAME.findall(stub.read())}

    def find(name):
        """Import a public name when it is first used."""
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from scratchbus.telemetry.lazy import import_from

        value = import_from(*homes[name])
        setattr(sys.modules[package], name, value)
        return value

    def names():
        """Return the public names, also those that are not imported yet."""
        return sorted({*vars(sys.modules[package]), *homes})

    return homes, find, names


_HOMES, __getattr__, __dir__ = _lazily(__name__, __file__)
__all__ = sorted(_HOMES)
