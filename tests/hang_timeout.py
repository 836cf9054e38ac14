"""A test that hangs beyond its timeout ends the process, with the stacks of its threads.

The plugin faulthandler of pytest does that after `faulthandler_timeout`, the same for all tests. Here, a test whose
mark allows it more time has that time, and as much again as the others have after theirs.
"""

from __future__ import annotations

import faulthandler

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Put off the end of the process for a test with a timeout of its own; pytest calls it off after the test."""
    mark = item.get_closest_marker("timeout")
    stderr = item.config.stash.get(fault_handler_stderr_fd_key, None)
    if mark is None or stderr is None:
        return
    usual, patience = float(item.config.getini("timeout")), float(item.config.getini("faulthandler_timeout"))
    allowed = float(mark.args[0])
    if allowed > usual:
        faulthandler.dump_traceback_later(allowed + patience - usual, file=stderr, exit=True)
