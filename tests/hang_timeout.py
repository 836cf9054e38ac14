"""End the process, with the stacks of its threads, when a test hangs beyond its own timeout.

The faulthandler plugin of pytest ends it after `faulthandler_timeout`, which is the same for all tests. This plugin
extends that for a test with a longer `timeout` mark by the difference to the usual timeout.
"""

from __future__ import annotations

import faulthandler

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Extend the faulthandler timeout of a test with a longer timeout; pytest cancels it after the test."""
    mark = item.get_closest_marker("timeout")
    stderr = item.config.stash.get(fault_handler_stderr_fd_key, None)
    if mark is None or stderr is None:
        return
    usual, patience = float(item.config.getini("timeout")), float(item.config.getini("faulthandler_timeout"))
    allowed = float(mark.args[0])
    if allowed > usual:
        faulthandler.dump_traceback_later(allowed + patience - usual, file=stderr, exit=True)
