"""What every test shares: one event loop, an environment of its own, patience with slow machines."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import hypothesis
import pytest

from scratchbus.engine.embedded.server import stop

pytest_plugins = ["tests.collector", "tests.alone", "tests.engines", "tests.hang_timeout", "tests.launcher.plugin"]

hypothesis.settings.register_profile("scratchbus", deadline=None)  # how fast a real engine answers proves nothing
hypothesis.settings.load_profile("scratchbus")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run async tests on asyncio, the one event loop that scratchbus supports."""
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def _own_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the user's settings and embedded engine out of the tests, and a Ctrl-C that the shell ignores for them."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith("SCRATCHBUS_"):
                patch.delenv(name)
        home = tmp_path_factory.mktemp("home")
        patch.setenv("SCRATCHBUS_HOME", str(home))
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # so in the background; what is started would inherit it
            signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
        stop(home)  # the engine of a test that named none


@pytest.fixture(scope="session", autouse=True)
def _unconfigured_logging() -> Iterator[None]:
    """Keep commands that run in this process from logging, for ever after, to the captured stderr of one test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scratchbus.daemon.runtime.configure_logging", lambda *_, **__: None)
        yield
