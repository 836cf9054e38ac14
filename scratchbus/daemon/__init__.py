"""The runtime of a daemon: a command line, `serve`, signals, logging, metrics and exit codes.

These names are public, as those of `scratchbus`, `scratchbus.errors` and `scratchbus.settings` are; the modules of this
package are not. The command line, the MCP server and the reference daemons use nothing else. They are listed in
`__init__.pyi`.
"""

from scratchbus import _lazily

_HOMES, __getattr__, __dir__ = _lazily(__name__, __file__)
__all__ = sorted(_HOMES)
