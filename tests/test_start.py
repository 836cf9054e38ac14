"""Imports at start: most of the start time of a program is spent on them, so rarely needed ones are lazy."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import pytest

from scratchbus import Bus
from scratchbus.engine.embedded.server import stop
from scratchbus.telemetry.lazy import lazy, once

ROOT = Path(__file__).parents[1]

RARELY_NEEDED = {
    "apscheduler", "backports.zstd", "fakeredis", "jsonschema", "mcp", "prometheus_client", "rich", "sqlite3",
    "structlog", "yaml", "scratchbus.archive", "scratchbus.commands.change", "scratchbus.commands.claim",
    "scratchbus.commands.clear",
    "scratchbus.domain.events", "scratchbus.domain.memories", "scratchbus.projections.table",
    "scratchbus.commands.memory", "scratchbus.context", "scratchbus.domain.registry_yaml",
    "scratchbus.readmodel.rebuild", "scratchbus.readmodel.status", "scratchbus.readmodel.verify",
    "scratchbus.scheduling", "scratchbus.subscriptions", "scratchbus.timetravel", "scratchbus.views", "scratchbus.work",
}  # fmt: skip
"""Modules that neither reading a page nor adding to it needs."""


def imported_by(code: str, *arguments: str, input: str = "") -> set[str]:
    """Return the modules that a new process has imported after running this code."""
    code += "\nimport json, sys\nprint(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    return set(json.loads(_ran(code, *arguments, input=input).stderr))


def _ran(code: str, *arguments: str, input: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, input=input)


def test_importing_scratchbus_imports_no_submodules():
    names = imported_by("import scratchbus")
    assert {name for name in names if name.startswith("scratchbus")} == {"scratchbus"}
    assert not names & {"asyncio", "click", "pydantic", "redis", *RARELY_NEEDED}


@pytest.mark.parametrize("name", ["Bus", "AsyncBus"])
def test_importing_the_bus_imports_nothing_needed_to_open_it(name: str):
    names = imported_by(f"from scratchbus import {name}")
    assert not names & {
        "asyncio", "click", "msgspec", "pydantic", "redis", "scratchbus.opening", "scratchbus.page", *RARELY_NEEDED,
    }  # fmt: skip


def test_opening_a_bus_imports_all_for_the_first_add_and_read():
    code = (
        "import sys\nfrom scratchbus import Bus\n"
        "bus = Bus.connect('memory://first', source='test')\nbefore = set(sys.modules)\n"
        "bus.page().add('observation', 'something')\nbus.page().active()\nprint(*sorted(set(sys.modules) - before))"
    )
    late = {
        name for name in _ran(code).stdout.split() if name.startswith(("importlib", "pydantic", "scratchbus", "yaml"))
    }
    shipped_types = {"readmodel.registry_files", "domain.registry", "domain.shipped_types"}
    assert late <= {f"scratchbus.{name}" for name in shipped_types}


@pytest.mark.real
def test_active_on_the_embedded_engine_imports_no_client_library(tmp_path: Path):
    url = f"embedded:{tmp_path}"
    try:
        with Bus.connect(url, source="test") as bus:
            bus.page().add("observation", "short")
        code = "import sys; from scratchbus.cli import main; main(['--url', sys.argv[1], 'active'])"
        assert not imported_by(code, url) & {"asyncio", "importlib.metadata", "redis", *RARELY_NEEDED}
    finally:
        stop(tmp_path)


@pytest.mark.real
def test_an_asyncio_bus_on_the_embedded_engine_imports_no_client_library(tmp_path: Path):
    code = (
        "import asyncio, sys\nfrom scratchbus import AsyncBus\n"
        "async def add():\n    async with AsyncBus.connect(sys.argv[1], source='test') as bus:\n"
        "        await bus.page().add('observation', 'short')\n        await bus.page().active()\n"
        "asyncio.run(add())"
    )
    url = f"embedded:{tmp_path}"
    try:
        for _ in range(3):  # the first runs start the engine and load its scripts
            names = imported_by(code, url)
    finally:
        stop(tmp_path)
    assert names & {"importlib.metadata", "redis", *RARELY_NEEDED} == set()


def test_an_mcp_server_over_stdio_answers_without_the_sdk():
    info = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    call = {"name": "list_observations", "arguments": {}}
    asked = [
        ("initialize", info),
        ("tools/list", {}),
        ("prompts/list", {}),
        ("resources/list", {}),
        ("tools/call", call),
    ]
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        for id, (method, params) in enumerate(asked)
    ]
    code = (
        "from scratchbus.cli import main; main(['--url', 'memory://start', 'mcp', '--agent', 'a', '--session', 's'])\n"
        "from scratchbus.mcp.toolbox import arguments_model; assert arguments_model.cache_info().misses == 1"
    )
    names = imported_by(code, input="\n".join(lines))
    assert {"scratchbus.mcp.json_rpc", "scratchbus.views"} <= names
    assert not names & {"mcp", "mcp_types", "starlette", "uvicorn", "httpx2", "jsonschema", "rich", "structlog"}
    assert not names & {"scratchbus.context", "scratchbus.memory.notes_async", "scratchbus.timetravel", "yaml"}


def test_an_invalid_address_is_refused_before_the_server_is_imported():
    code = (
        "import io\nfrom contextlib import redirect_stderr, suppress\nfrom scratchbus.cli import main\n"
        "with suppress(SystemExit), redirect_stderr(io.StringIO()) as error:\n"
        "    main(['serve', '--listen', 'nowhere'])\n"
        "assert \"'nowhere' is not an address to listen on\" in error.getvalue()"
    )
    assert not imported_by(code) & {"fastapi", "uvicorn", "scratchbus.http"}


def test_memories_do_not_import_timetravel():
    memories = ("facts", "files", "notepad", "notes", "preferences", "scratchpad", "texts", "todo", "turns")
    names = imported_by(
        "\n".join(f"import scratchbus.memory.{name}_async, scratchbus.memory.{name}" for name in memories)
    )
    assert "scratchbus.timetravel" not in names


def test_an_open_bus_knows_every_script_of_readers():
    """Connecting loads them for users who may only read, including scripts of modules that are imported lazily."""

    def known_after(code: str) -> str:
        code += "\nfrom scratchbus.engine.scripts import Script\nprint(sorted(Script.reading))"
        return _ran(code).stdout

    bus = "from scratchbus import Bus\nBus.connect('memory://scripts', source='test')"
    assert known_after(bus) == known_after(f"{bus}\nimport scratchbus.{', scratchbus.'.join(READING_MODULES)}")


READING_MODULES = (
    "commands.trace",
    "readmodel.relations",
    "readmodel.verify",
    "readmodel.rebuild",
    "timetravel",
    "views.view",
)


def test_a_lazy_module_is_imported_on_first_use():
    code = (
        "import sys\nfrom scratchbus.telemetry.lazy import lazy\n"
        "calendars = lazy('calendar')\nbefore = 'calendar' in sys.modules\n"
        "first, again = calendars.monthrange, calendars.monthrange\n"
        "print(before, 'calendar' in sys.modules, first is again is sys.modules['calendar'].monthrange)"
    )
    assert _ran(code).stdout.split() == ["False", "True", "True"]


def test_imports_on_first_use_wait_in_the_module_that_declares_them_alone():
    code = (
        "import builtins, sys, threading\nfrom scratchbus.telemetry.lazy import imported_on_first_use\n"
        "plain = builtins.__import__\n"
        "with imported_on_first_use(__name__):\n    import calendar\n    from xml import dom as documents\n"
        "    other = threading.Thread(target=exec, args=('import colorsys', {'__name__': 'other'}))\n"
        "    other.start()\n    other.join()\n"
        "before = [name in sys.modules for name in ('calendar', 'xml.dom', 'colorsys')]\n"
        "print(*before, calendar.monthrange(2026, 2)[1], documents.Node.__name__, builtins.__import__ is plain)"
    )
    assert _ran(code).stdout.split() == ["False", "False", "True", "28", "Node", "True"]


@pytest.mark.slow
@pytest.mark.parametrize("package", ["scratchbus", "scratchbus.daemon"])
def test_each_public_name_can_be_used_first(package: str):
    code = (
        "import os, sys\nfrom importlib import import_module\nmodule = import_module(sys.argv[1])\n"
        "for name in module.__all__:\n    sys.stdout.flush()\n"
        "    if not os.fork():\n        getattr(module, name)\n        print(name)\n        sys.exit()\n    os.wait()"
    )
    assert _ran(code, package).stdout.split() == import_module(package).__all__


def test_a_lazy_attribute_can_be_a_submodule():
    code = (
        "import scratchbus\nfrom scratchbus.telemetry.lazy import lazy\n"
        "print(lazy('xml').dom.__name__, scratchbus.events.__name__)"
    )
    assert _ran(code).stdout.split() == ["xml.dom", "scratchbus.domain.events"]


def test_a_missing_name_of_a_lazy_module_raises():
    with pytest.raises(AttributeError, match="'json' has no attribute 'nothing'"):
        _ = lazy("json").nothing


def test_threads_import_interdependent_modules_one_at_a_time(tmp_path: Path):
    package = tmp_path / "package"
    package.mkdir()
    slow = "import time\ntime.sleep(0.2)\n"
    (package / "__init__.py").write_text(f"{slow}more = 'whole'\nfrom package.part import whole\n")
    (package / "part.py").write_text("from package import more as whole\n")
    code = (
        f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n"
        "from concurrent.futures import ThreadPoolExecutor\nfrom scratchbus.telemetry.lazy import lazy\n"
        "with ThreadPoolExecutor(2) as threads:\n"
        "    print(*threads.map(lambda name: lazy(name).whole, ['package', 'package.part']))"
    )
    assert _ran(code).stdout.split() == ["whole", "whole"]


@pytest.mark.slow
@pytest.mark.parametrize("_", range(3))
def test_concurrent_first_uses_of_a_bus_succeed(_: int):
    assert _ran(_FIRST_USES).stdout.split() == ["done"] * 5


_FIRST_USES = """
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import scratchbus

sys.setswitchinterval(1e-5)
bus = scratchbus.Bus.connect("memory://first-uses", source="test")
page = bus.page()
page.add("observation", "something")
uses = [
    lambda: bus.subscribe("s").__enter__().__exit__(None, None, None),
    lambda: bus.work("w").__enter__().__exit__(None, None, None),
    bus.status,
    bus.dead_letters,
    page.claim_next,
]
ready = threading.Barrier(len(uses))


def use(each):
    ready.wait()
    each()
    return "done"


with ThreadPoolExecutor(len(uses)) as threads:
    print(*threads.map(use, uses))
"""


def test_concurrent_first_connects_succeed():
    code = (
        "import sys, threading\nfrom concurrent.futures import ThreadPoolExecutor\nimport scratchbus\n"
        "sys.setswitchinterval(1e-5)\nready = threading.Barrier(4)\n"
        "def use(name):\n    ready.wait()\n"
        "    with scratchbus.Bus.connect(f'memory://{name}', source='test') as bus:\n"
        "        return bus.page().add('observation', name).content\n"
        "with ThreadPoolExecutor(4) as threads:\n    print(*threads.map(use, 'abcd'))"
    )
    assert _ran(code).stdout.split() == ["a", "b", "c", "d"]


def test_a_process_forked_during_an_import_can_import(tmp_path: Path):
    (tmp_path / "slow.py").write_text("import begun, time\nbegun.event.set()\ntime.sleep(0.3)\nvalue = 'there'\n")
    (tmp_path / "begun.py").write_text("import threading\nevent = threading.Event()\n")
    code = (
        f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n"
        "import begun, os, signal, threading\nfrom scratchbus.telemetry.lazy import lazy\n"
        "thread = threading.Thread(target=lambda: lazy('slow').value)\nthread.start()\nbegun.event.wait()\n"
        "if child := os.fork():\n    print('code', os.waitpid(child, 0)[1])\n    thread.join()\n"
        "else:\n    signal.alarm(60)\n    os._exit(lazy('slow').value != 'there')\n"
    )
    assert _ran(code).stdout.split() == ["code", "0"]


def test_serve_imports_all_lazy_modules_before_its_work():
    code = (
        "import sys\nfrom scratchbus import Bus\nfrom scratchbus.daemon import serve\n"
        "serve(lambda: Bus.connect('memory://daemon', source='test'), lambda *_: print(*sys.modules))"
    )
    names = set(_ran(code).stdout.split())
    assert names >= {"scratchbus.subscriptions", "scratchbus.views.view", "scratchbus.domain.trace", "redis.backoff"}
    assert names >= {"scratchbus.memory.notes", "scratchbus.archive.stores"}


def test_once_gives_all_threads_the_same_value():
    both_make = threading.Barrier(2)

    class Owner:
        @once
        def value(self) -> object:
            """Something."""
            both_make.wait()
            return object()

    owner = Owner()
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda _: owner.value, range(2))
    assert first is second is owner.value
