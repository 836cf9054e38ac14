"""Setup of every test: the event loop, an environment without the user's settings, no deadlines in hypothesis."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import hypothesis
import pytest

from scratchbus.engine.embedded.server import stop

pytest_plugins = ["tests.collector", "tests.alone", "tests.engines", "tests.hang_timeout", "tests.launcher.plugin"]

for _name in [name for name in os.environ if name.lower().endswith("_proxy")]:
    del os.environ[_name]  # before test modules make clients, which would ask a proxy for servers on this machine
for _name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
    os.environ.pop(_name, None)

hypothesis.settings.register_profile("scratchbus", deadline=None)  # the speed of a real engine proves nothing
hypothesis.settings.load_profile("scratchbus")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run async tests on asyncio, the one event loop that scratchbus supports."""
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def _own_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hide the user's settings and embedded engine from the tests, and restore Ctrl-C if the shell ignores it."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith("SCRATCHBUS_"):
                patch.delenv(name)
        home = tmp_path_factory.mktemp("home")
        patch.setenv("SCRATCHBUS_HOME", str(home))
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a background job; child processes would inherit that
            signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
        stop(home)  # the engine of tests that named none


@pytest.fixture(scope="session", autouse=True)
def _unconfigured_logging() -> Iterator[None]:
    """Keep commands in this process from configuring logging to the captured stderr of one test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scratchbus.daemon.runtime.configure_logging", lambda *_, **__: None)
        yield
