"""The blocking facades are generated from the asyncio ones, and the committed files are up to date."""

import ast
import textwrap

import pytest

from tools.generate_blocking import NOTE, blocking, generated, target_of
from tools.generated import ROOT

SOURCES = [
    source
    for source in sorted((ROOT / "scratchbus").rglob("*_async.py"))
    if NOTE in target_of(source).read_text("utf-8")
]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("async def get(self) -> int:\n    return await self.x()\n", "def get(self) -> int:\n    return self.x()\n"),
        ("async with bus:\n    async for event in bus: ...\n", "with bus:\n    for event in bus: ...\n"),
        ("class AsyncPage(_AsyncBase): ...\n", "class Page(_Base): ...\n"),
        ("x: Callable[[AsyncJob], Awaitable[list[int]]]\n", "x: Callable[[Job], list[int]]\n"),
        ("from a.page_async import AsyncPage\n", "from a.page import Page\n"),
        ("woken = asyncio.Event()\n", "woken = threading.Event()\n"),
        ("raise StopAsyncIteration\n", "raise StopIteration\n"),
        ("async def __aenter__(self): ...\n", "def __enter__(self): ...\n"),
        ("await events.aclose()\n", "events.close()\n"),
        ("# Shared between tasks. Any task may call it.\n", "# Shared between threads. Any thread may call it.\n"),
        ('"""Use an `async with` of an AsyncBus."""\n', '"""Use a `with` of a Bus."""\n'),
        ('"""Raises X (asyncio: when awaited). More."""\n', '"""Raises X. More."""\n'),
        ('"""Begin a task of a session."""\n', '"""Begin a task of a session."""\n'),
        ("asyncify = awaited = 1\n", "asyncify = awaited = 1\n"),
    ],
)  # fmt: skip
def test_each_rule_gives_the_blocking_code(source, expected):
    assert blocking(source) == expected


def test_a_region_applies_to_one_facade():
    source = textwrap.dedent("""\
        class AsyncA:
            # asyncio only:
            def __await__(self): ...
            # end
            # blocking only:
            # def open(self):
            #     greet()
            # end
            x = 1
    """)
    expected = textwrap.dedent("""\
        class A:
            def open(self):
                greet()
            x = 1
    """)
    assert blocking(source) == expected


def test_a_region_without_an_end_is_refused():
    with pytest.raises(ValueError, match="has no end"):
        blocking("# asyncio only:\nx = 1\n")


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_no_generated_file_is_stale(source):
    assert target_of(source).read_text("utf-8") == generated(source), "run `make generate`"


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_generated_code_has_no_asyncio(source):
    text = target_of(source).read_text("utf-8")
    assert not any(isinstance(node, ast.AsyncFunctionDef | ast.Await) for node in ast.walk(ast.parse(text)))
    assert "asyncio" not in text.lower()
    assert "await" not in text


def test_every_facade_is_generated():
    assert len(SOURCES) >= 14
