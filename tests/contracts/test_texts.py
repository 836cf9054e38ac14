"""Texts of a scope, and the import of conversations, files and texts into another bus."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from scratchbus import AsyncBus, Bus
from scratchbus.archive.export import line_of
from scratchbus.commands import texts as texts_commands
from scratchbus.errors import Conflict, EventIdReused, InvalidField, InvalidName, NotFound, TooLarge
from scratchbus.eventlog.append import append
from tests.engines import NewBus
from tests.inspection import log_length, project, remembered


@pytest.fixture
def texts(bus: Bus):
    return bus.texts("project-a")


def contents(found):
    return {text.path: text.content for text in found}


def test_a_text_is_created_edited_and_deleted(texts):
    created = texts.create("notes/q3.md", "one\ntwo\n")
    assert (created.path, created.content, created.source, created.version) == (
        "notes/q3.md",
        "one\ntwo\n",
        "tester",
        1,
    )
    assert texts.replace("notes/q3.md", "two", "2").content == "one\n2\n"
    assert texts.insert("notes/q3.md", 1, "1.5\n").content == "one\n1.5\n2\n"
    assert texts.insert("notes/q3.md", 0, "zero").content == "zero\none\n1.5\n2\n"
    assert texts.read("notes/q3.md").version == 4
    texts.delete("notes/q3.md")
    with pytest.raises(NotFound, match=r"there is no text 'notes/q3\.md'"):
        texts.read("notes/q3.md")
    assert texts.create("notes/q3.md", "again").version == 6
    kinds = [event.kind for event in texts.history("notes/q3.md")]
    assert kinds == ["text_written", *["text_edited"] * 3, "text_deleted", "text_written"]


def test_a_line_can_be_inserted_into_an_empty_text(texts):
    texts.create("a", "")
    assert texts.insert("a", 0, "one").content == "one\n"


def test_as_of_returns_past_texts(texts):
    first = texts.create("a", "1")
    texts.replace("a", "1", "2")
    last = texts.history("a")[-1]
    texts.delete("a")
    assert texts.as_of("a", first.position) == "1"
    assert texts.as_of("a", last.position) == "2"
    assert texts.as_of("a", texts.history("a")[-1].position) is None


def test_directories_are_listed_moved_and_deleted(texts):
    for path in ("a", "d/x", "d/e/y", "dx"):
        texts.create(path, path)
    assert list(contents(texts.list())) == ["a", "d/e/y", "d/x", "dx"]
    assert list(contents(texts.list("d"))) == ["d/e/y", "d/x"]
    texts.rename("d", "f/g")
    assert contents(texts.list()) == {"a": "a", "dx": "dx", "f/g/e/y": "d/e/y", "f/g/x": "d/x"}
    moved = texts.history("f/g/x")[0]
    assert (moved.source, texts.history("d/x")[-1].target) == ("d/x", "f/g/x")
    texts.delete("f")
    assert list(contents(texts.list())) == ["a", "dx"]


@pytest.mark.parametrize(
    ("act", "path"),
    [
        (lambda texts: texts.create("a/b", "mine"), "a"),
        (lambda texts: texts.create("a", "mine"), "a/b/c"),
        (lambda texts: texts.create('a"/b', "mine"), 'a"'),
        (lambda texts: texts.rename("x", "a/b"), "a"),
        (lambda texts: texts.rename("x", "a"), "a/b"),
    ],
)
def test_a_text_and_a_directory_of_one_name_are_not_created_at_once(bus, texts, monkeypatch, act, path):
    others = bus.texts("project-a")
    texts.create("x", "moved")

    def append_second(*args):
        monkeypatch.undo()
        others.create(path, "theirs")
        return append(*args)

    monkeypatch.setattr(texts_commands, "append", append_second)
    with pytest.raises(Conflict, match=r"is a text, not a directory|is a directory|already exists"):
        act(texts)
    assert contents(texts.list()) == {"x": "moved", path: "theirs"}


def test_creating_a_text_is_not_disturbed_by_unrelated_ones(bus, texts, monkeypatch):
    others = bus.texts("project-a")

    def append_second(*args):
        monkeypatch.undo()
        for path in ("a", "bc/d", "b.md"):
            others.create(path, "theirs")
        bus.texts("project-b").create("b", "of another scope")
        monkeypatch.setattr(texts_commands, "append", None)
        return append(*args)

    monkeypatch.setattr(texts_commands, "append", append_second)
    assert texts.create("b/c", "mine").content == "mine"


def test_existing_texts_are_not_overwritten(bus, texts):
    for path in ("a", "d/x"):
        texts.create(path, path)
    length = log_length(bus)
    for act, says in (
        (lambda: texts.create("a", "2"), "'a' already exists"),
        (lambda: texts.create("a/b", "2"), "'a' is a text, not a directory"),
        (lambda: texts.create("d", "2"), "'d' is a directory"),
        (lambda: texts.rename("a", "d/x"), "'d/x' already exists"),
        (lambda: texts.rename("a", "d"), "'d/x' already exists"),
        (lambda: texts.rename("d", "a/d"), "'a' already exists"),
    ):
        with pytest.raises(Conflict, match=says):
            act()
    with pytest.raises(InvalidField, match="itself or inside it"):
        texts.rename("d", "d/e")
    assert log_length(bus) == length


def test_one_of_several_concurrent_creations_wins(bus, connect):
    results = []

    def create(name):
        try:
            results.append(connect(name).texts("s").create("a", name).content)
        except Conflict:
            results.append(None)

    threads = [threading.Thread(target=create, args=(f"writer-{number}",)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [bus.texts("s").read("a").content] == [each for each in results if each]


def test_a_rename_keeps_a_concurrent_edit(texts, monkeypatch):
    from scratchbus.commands import texts as commands

    texts.create("a", "1")
    real = commands.append  # type: ignore[attr-defined]  # an imported name
    edits = [lambda: texts.replace("a", "1", "2")]

    def overtaken(log, page, writes):
        if edits and len(writes) == 2:
            edits.pop()()
        return (yield from real(log, page, writes))

    monkeypatch.setattr(commands, "append", overtaken)
    texts.rename("a", "b")
    assert contents(texts.list()) == {"b": "2"}


def test_retries_change_nothing(bus, texts):
    texts.create("a", "1", event_id="e1")
    texts.replace("a", "1", "2", event_id="e2")
    texts.rename("a", "b", event_id="e3")
    length = log_length(bus)
    assert texts.create("a", "1", event_id="e1").content == "1"
    assert texts.replace("a", "1", "2", event_id="e2").content == "2"
    texts.rename("a", "b", event_id="e3")
    assert log_length(bus) == length
    with pytest.raises(EventIdReused):
        texts.rename("a", "c", event_id="e3")


def test_an_erased_text_is_gone_and_can_be_created_again(bus, texts):
    secret = texts.create("a", "the password is swordfish")
    bus.page("knowledge:project-a").erase(secret.id, reason="secret")
    assert texts.list() == []
    assert "swordfish" not in str([event.model_dump() for event in bus.events()])
    texts.create("a", "2")
    assert texts.replace("a", "2", "3").content == "3"


def test_a_rebuild_restores_texts(bus, texts):
    texts.create("a", "1")
    texts.create("b", "1")
    texts.delete("b")
    project(bus)
    before = remembered(bus)
    bus.rebuild()
    assert remembered(bus) == before
    assert contents(texts.list()) == {"a": "1"}


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (lambda texts: texts.create("../a", "1"), InvalidField),
        (lambda texts: texts.create("a", None), InvalidField),
        (lambda texts: texts.create("a", "x" * 100_001), TooLarge),
        (lambda texts: texts.read("/a"), InvalidField),
        (lambda texts: texts.list(".."), InvalidField),
        (lambda texts: texts.replace("there", "nowhere", "2"), InvalidField),
        (lambda texts: texts.replace("there", "o", "2"), InvalidField),
        (lambda texts: texts.replace("there", "", "2"), InvalidField),
        (lambda texts: texts.replace("there", "f", "x" * 100_001), TooLarge),
        (lambda texts: texts.insert("there", 2, "x"), InvalidField),
        (lambda texts: texts.insert("there", -1, "x"), InvalidField),
        (lambda texts: texts.insert("there", 0, "x" * 100_001), TooLarge),
        (lambda texts: texts.replace("a", "1", "2"), NotFound),
        (lambda texts: texts.delete("a"), NotFound),
        (lambda texts: texts.rename("a", "b"), NotFound),
        (lambda texts: texts.rename("there", "../b"), InvalidField),
    ],
)
def test_bad_input_changes_nothing(bus, texts, act, error):
    texts.create("there", "foo")
    with pytest.raises(error):
        act(texts)
    assert log_length(bus) == 1


def test_an_invalid_scope_name_is_refused(bus):
    for name in ("", "a b", "x" * 119, None):
        with pytest.raises(InvalidName):
            bus.texts(name)


async def test_async_texts_behave_the_same():
    async with AsyncBus.connect("memory://", bus="texts-async", source="tester") as bus:
        created = await bus.texts("s").create("a", "1")
        assert await bus.texts("s").list() == [created]


def test_an_import_restores_turns_files_and_texts(new_bus: NewBus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("scratchbus.commands.files.home_of", lambda settings: tmp_path)
    with new_bus() as bus, new_bus() as copy:
        task = bus.begin_task("s1", "Survey")
        bus.turns("s1").append("tool", "sheet 1", tokens=3)
        bus.end_task(task, "Six sheets.")
        bus.turns("s1").append("user", "thanks", task=bus.begin_task("s1", "Fix"))
        bus.turns("s1").compact("so far", turns=[bus.turns("s1").shown()[0].id])
        bus.files("s1").write("a", "1")
        bus.files("s1").write("b", "2")
        bus.files("s1").delete("b")
        bus.texts("p").create("a", "1\n")
        bus.texts("p").replace("a", "1", "2")
        bus.texts("p").insert("a", 1, "3")
        bus.texts("p").rename("a", "b")
        copy.import_events([line_of(event) for event in bus.events()])
        assert copy.verify().findings == []
        assert copy.turns("s1").shown() == bus.turns("s1").shown()
        assert copy.files("s1").list() == bus.files("s1").list()
        assert copy.texts("p").list() == bus.texts("p").list()


def test_a_retried_creation_is_recognised_when_its_path_is_taken(texts):
    texts.create("a", "1", event_id="e1")
    texts.create("b/c", "2", event_id="e2")
    for path in ("a", "b"):
        texts.delete(path)
    texts.create("a/d", "3")
    texts.create("b", "4")
    assert texts.create("a", "1", event_id="e1").content == "1"
    assert texts.create("b/c", "2", event_id="e2").content == "2"
    assert [text.path for text in texts.list()] == ["a/d", "b"]
    for path, event_id in (("a", "e3"), ("b/c", None)):
        with pytest.raises(Conflict, match="choose another path"):
            texts.create(path, "5", event_id=event_id)
