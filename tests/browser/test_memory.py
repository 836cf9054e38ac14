"""The view Memory: notes, notepads, todo lists and other memories of agents, and the context made of them."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Route, expect

from scratchbus import Bus
from tests.browser.conftest import Console, Opened, address_of
from tests.browser.serving import Served
from tests.browser.test_shell import violations


def remember(bus: Bus, session: str, page: str = "main") -> str:
    """Fill all memories of a session; return a session spawned from it."""
    bus.notes(session).add("The bank answers on Mondays only", ["bank"])
    bus.notes(session).add("The user is in Lagos every spring", ["user"])
    bus.notepad(session).write("# Case\n\nThe card is stolen.\n")
    bus.notepad(session).update("find_replace", find="is stolen", replace="may be stolen")
    bus.todo(session).write([{"id": "1", "content": "Ask the bank"}, {"id": "2", "content": "Call the user"}])
    bus.end_task(bus.begin_task(session, "Find the terminal"), "Its clock was wrong.")
    bus.scratchpad("daemon")
    bus.page(page).add("risk_alert", "The card looks stolen")
    bus.context.assemble(session=session, page=page, record=True)
    return bus.spawn_session(session)


@pytest.mark.browser
def test_notes_are_searched_corrected_and_deleted(console: Console, bus: Bus) -> None:
    """A correction is refused with a message if another client has changed the note meanwhile."""
    remember(bus, "memory-notes", "memory:notes")
    notes = bus.notes("memory-notes")
    console.sees_failures = True
    window = console.open("#/memory?session=memory-notes")
    expect(window.locator(".note")).to_have_count(2)
    window.get_by_label("Search the notes").fill("monday")
    expect(window.locator(".note")).to_have_count(1)
    window.get_by_role("button", name="Correct").click()
    window.get_by_label("Content").fill("The bank answers on Tuesdays only")
    note = next(each for each in notes.list().notes if "Mondays" in each.content)
    notes.update(note.id, tags=["bank", "slow"])
    window.get_by_role("button", name="Save").click()
    expect(window.get_by_text("Someone else was faster.")).to_be_visible()
    window.keyboard.press("Escape")
    expect(window.locator(".note .tag", has_text="slow")).to_be_visible()
    window.get_by_role("button", name="Correct").click()
    window.get_by_label("Content").fill("The bank answers on Tuesdays only, Monday is closed")
    window.get_by_role("button", name="Save").click()
    expect(window.locator(".note")).to_contain_text("Tuesdays")
    assert {each.content for each in notes.list().notes} >= {"The bank answers on Tuesdays only, Monday is closed"}
    window.get_by_role("button", name="Delete").click()
    window.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(window.get_by_text("No note fits")).to_be_visible()
    assert [each.content for each in notes.list().notes] == ["The user is in Lagos every spring"]


@pytest.mark.slow
def test_notepad_versions_are_compared_and_restored(console: Console, bus: Bus) -> None:
    """A version shows its changes; restoring an old one makes a new one."""
    remember(bus, "memory-pad", "memory:pad")
    window = console.open("#/memory?session=memory-pad&tab=notepad")
    expect(window.locator(".version")).to_have_count(2)
    window.locator(".version").first.click()
    expect(window.locator(".sheet del")).to_have_text("is")
    expect(window.locator(".sheet ins")).to_have_text("may be")
    window.locator(".version").nth(1).click()
    expect(window.locator(".sheet")).to_contain_text("The card is stolen.")
    window.get_by_role("button", name="Restore").click()
    window.get_by_role("button", name="Save").click()
    expect(window.locator(".version")).to_have_count(3)
    assert bus.notepad("memory-pad").read() == "# Case\n\nThe card is stolen.\n"


@pytest.mark.browser
def test_todo_items_change_and_a_session_ends(console: Console, bus: Bus) -> None:
    """One item is completed, one deleted; a task shows its summary; the tree shows the child; the session ends."""
    child = remember(bus, "memory-todo", "memory:todo")
    window = console.open("#/memory?session=memory-todo&tab=todo")
    window.get_by_label("Status of Ask the bank").select_option("completed")
    expect(window.locator(".todo-item.is-completed")).to_contain_text("Ask the bank")
    window.get_by_role("button", name="Delete Call the user").click()
    expect(window.locator(".todo-item")).to_have_count(1)
    assert [(each.id, each.status) for each in bus.todo("memory-todo").read().todos] == [("1", "completed")]
    window.keyboard.press("]")
    expect(window.locator(".tasks")).to_contain_text("Its clock was wrong.")
    window.locator(".tree-link", has_text=child).click()
    expect(window.locator(".memory-about")).to_contain_text("begun from memory-todo")
    window.locator(".memory-about a").click()
    window.get_by_role("button", name="End …").click()
    window.get_by_role("button", name="End the session").click()
    expect(window.locator(".memory-head .status")).to_have_text("ended")


@pytest.mark.browser
def test_context_lines_link_to_their_sources(console: Console, bus: Bus) -> None:
    """The context is that of `assemble`; a small budget leaves lines out; a line links to its story."""
    remember(bus, "memory-context", "memory:context")
    window = console.open("#/memory?page=memory:context&session=memory-context&tab=context")
    expect(window.locator(".context-lines")).not_to_have_count(0)
    made = bus.context.assemble(session="memory-context", agent="daemon", page="memory:context", budget=4000)
    expect(window.locator(".budget p")).to_contain_text(f"{made.tokens:,} of 4,000 tokens; everything has room")
    expect(window.locator(".earlier li")).to_have_count(1)
    window.get_by_label("Budget, in tokens").fill("260")
    expect(window.locator(".budget .left-out")).to_be_visible()
    assert "budget=260" in address_of(window)
    window.get_by_label("Budget, in tokens").fill("4000")
    window.locator(".context-from a", has_text="story").click()
    expect(window.locator(".story-content")).to_have_text("The card looks stolen")


@pytest.mark.browser
def test_past_memory_is_shown_read_only(console: Console, bus: Bus) -> None:
    """At a moment of the past the notes are those of then, without forms."""
    remember(bus, "memory-past", "memory:past")
    first = bus.notes("memory-past").history()[0].position
    window = console.open(f"#/memory?session=memory-past&at={first}")
    expect(window.locator(".note")).to_have_count(1)
    expect(window.get_by_role("button", name="Correct")).to_have_count(0)
    window.get_by_role("tab", name="Notepad").click()
    expect(window.get_by_text("The notepad was empty then")).to_be_visible()
    window.keyboard.press("l")
    expect(window.locator(".version")).to_have_count(2)


@pytest.mark.browser
def test_a_scratchpad_is_hidden_from_others(console: Console, bus: Bus) -> None:
    """A person sees that an agent has a scratchpad, but not its content."""
    with Bus.connect(console.served.url, source="quiet-agent", kind="subagent") as agent:
        agent.scratchpad("quiet-agent").write("a secret of mine")
    window = console.open("#/memory?agent=quiet-agent")
    expect(window.get_by_text("Only quiet-agent reads its scratchpad")).to_be_visible()
    expect(window.get_by_text("a secret of mine")).to_have_count(0)


@pytest.mark.browser
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_memory_passes_axe(open_console: Opened, served: Served, bus: Bus, scheme: str, width: int) -> None:
    """Checks every part of a session, and the form that corrects a note."""
    session = f"memory-axe-{scheme}-{width}"
    remember(bus, session, "memory:axe")
    bus.turns(session).append("user", "Where is the card?")
    bus.turns(session).compact("Asked for the card.")
    bus.files(session).write("check.py", "print('checked')")
    console = open_console(served, scheme=scheme, width=width)
    window = console.open(f"#/memory?page=memory:axe&session={session}")
    expect(window.locator(".note")).to_have_count(2)
    for part, sign in (
        ("Notes", ".note"),
        ("Notepad", ".version"),
        ("Todo", ".todo-item"),
        ("Tasks", ".tasks"),
        ("Conversation", ".turn .turn"),
        ("Files", ".files-table"),
        ("Context", ".budget"),
    ):
        window.get_by_role("tab", name=part).click()
        if part == "Conversation":
            window.get_by_role("button", name="Show the turn it replaced").click()
        expect(window.locator(sign).first).to_be_visible()
        assert violations(window) == [], part
    window.get_by_role("tab", name="Notes").click()
    window.get_by_role("button", name="Correct").first.click()
    assert violations(window) == []
    assert window.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.slow
def test_a_summary_expands_and_a_text_file_opens(console: Console, bus: Bus) -> None:
    """A summary expands to the turns that it replaced, also in the past; text files open, others do not."""
    turns = bus.turns("memory-turns")
    turns.append("user", "Why does the payment fail?", tokens=6)
    turns.append("assistant", "The bank is closed.")
    task = bus.begin_task("memory-turns", "Ask the bank")
    turns.append("tool", "503 from the bank")
    bus.end_task(task, "It opens on Monday.")
    before = turns.history()[-1].position
    turns.compact("The bank is closed until Monday.")
    files = bus.files("memory-turns")
    files.write("scripts/check.py", "print('checked')\n")
    files.write("data.bin", b"\xff\x00\xfe")
    window = console.open("#/memory?session=memory-turns&tab=turns")
    expect(window.locator(".turn")).to_have_count(1)
    window.get_by_role("button", name="Show the 3 turns it replaced").click()
    expect(window.locator(".turn .turn")).to_have_count(3)
    expect(window.locator(".turn .turn").first).to_contain_text("Why does the payment fail?")
    expect(window.locator(".turn .turn").last).to_contain_text("It opens on Monday.")
    window = console.open(f"#/memory?session=memory-turns&tab=turns&at={before}")
    expect(window.locator(".turns > .turn")).to_have_count(3)
    window = console.open("#/memory?session=memory-turns&tab=files")
    window.get_by_role("button", name="scripts/check.py").click()
    expect(window.locator(".file-content")).to_have_text("print('checked')")
    window.keyboard.press("Escape")
    window.get_by_role("button", name="data.bin").click()
    expect(window.get_by_text("It is not text.")).to_be_visible()
    window.keyboard.press("Escape")
    child = bus.spawn_session("memory-turns")
    window.locator(".tree-link", has_text=child).click()
    expect(window.locator(".files-table tbody tr")).to_have_count(2)
    window = console.open(f"#/memory?session=memory-turns&tab=files&at={before}")
    expect(window.get_by_text("There were no files then")).to_be_visible()


@pytest.mark.browser
def test_of_many_sessions_the_newest_and_the_chosen_are_listed(own_server: Served, open_console: Opened) -> None:
    """A button shows more, and a search finds the rest."""
    with Bus.connect(own_server.url, source="agent") as bus:
        for number in range(450):
            bus.notes(f"case-{number:03}").add("a note")
    window = open_console(own_server).open("#/memory?session=case-002")
    tree = window.get_by_role("region", name="Scopes, sessions and agents")
    expect(tree.locator(".tree-link")).to_have_count(201)
    expect(tree.locator(".tree-link").first).to_contain_text("case-44")
    expect(tree.locator("[aria-current=true]")).to_contain_text("case-002")
    expect(tree.get_by_text("200 of 450 sessions")).to_be_visible()
    tree.get_by_role("button", name="Show more").click()
    expect(tree.locator(".tree-link")).to_have_count(401)
    tree.get_by_role("searchbox").fill("case-01")
    expect(tree.locator(".tree-link")).to_have_count(10)
    expect(tree.get_by_role("button", name="Show more")).to_have_count(0)


@pytest.mark.browser
def test_quick_changes_of_a_todo_list_follow_one_another(console: Console, bus: Bus) -> None:
    """Each is based on the list that the one before left, however late its answer comes."""
    items = [{"id": str(number), "content": f"Item {number}"} for number in range(4)]
    bus.todo("memory-quick").write(items)
    window = console.open("#/memory?session=memory-quick&tab=todo")
    held: list[Route] = []

    def hold_first(route: Route) -> None:
        if held or route.request.method != "PATCH":
            route.continue_()
        else:
            held.append(route)

    window.route("**/api/v1/sessions/memory-quick/todo", hold_first)
    with window.expect_request(lambda request: request.method == "PATCH"):
        window.get_by_label("Status of Item 0").select_option("completed")
    window.get_by_label("Status of Item 1").select_option("in_progress")
    window.get_by_role("button", name="Delete Item 2").click()
    window.locator(".todo-item", has_text="Item 3").get_by_role("button", name="Correct").click()
    held[0].continue_()
    expect(window.locator(".todo-item")).to_have_count(3)
    window.get_by_label("What to do").fill("Item three")
    window.get_by_role("button", name="Save").click()
    expect(window.locator(".todo-item.is-in_progress")).to_contain_text("Item 1")
    expect(window.locator(".todo-item").last).to_contain_text("Item three")
    expect(window.locator(".toast.error")).to_have_count(0)
    found = [(each.id, each.status, each.content) for each in bus.todo("memory-quick").read().todos]
    assert found == [("0", "completed", "Item 0"), ("1", "in_progress", "Item 1"), ("3", "pending", "Item three")]


@pytest.mark.browser
def test_a_context_that_is_no_longer_wanted_is_not_assembled_to_the_end(console: Console, bus: Bus) -> None:
    """Its request ends when the budget changes."""
    remember(bus, "memory-budget", "memory:budget")
    window = console.open("#/memory?session=memory-budget&tab=context&page=memory:budget")
    expect(window.locator(".budget")).to_be_visible()
    held: list[Route] = []

    def hold_first(route: Route) -> None:
        if held:
            route.continue_()
        else:
            held.append(route)

    window.route("**/api/v1/context/assemble", hold_first)
    with window.expect_request("**/api/v1/context/assemble"):
        window.get_by_label("Budget, in tokens").fill("3000")
    with window.expect_event("requestfailed", lambda request: request.url.endswith("/context/assemble")) as ended:
        window.get_by_label("Budget, in tokens").fill("2000")
    assert ended.value.failure == "net::ERR_ABORTED"
    expect(window.locator(".budget")).to_contain_text("of 2,000 tokens")


@pytest.mark.browser
def test_a_session_of_a_whole_second_is_older_than_those_after_it(
    open_console: Opened, served: Served, bus: Bus
) -> None:
    """The time of an event at 0 ms is written without a fraction; equal times keep the order of the answer."""
    ends = {"a": "36Z", "b": "35.250000Z", "c": "35Z", "d": "34.750000Z", "e": "35.250000Z"}
    for name in ends:
        bus.notes(f"whole-{name}").add("a note")
    console = open_console(served)

    def set_times(route: Route) -> None:
        answer = route.fetch()
        items = [each for each in answer.json()["items"] if each["id"].startswith("whole-")]
        for each in items:
            each["updated_at"] = f"2026-11-22T22:20:{ends[each['id'][-1]]}"
        route.fulfill(response=answer, json={"items": sorted(items, key=lambda each: each["id"]), "agents": []})

    console.window.route("**/api/v1/sessions", set_times)
    window = console.open("#/memory")
    expect(window.locator(".tree-link", has_text="whole-")).to_have_text(
        [re.compile(f"whole-{name}") for name in "abecd"]
    )


@pytest.mark.browser
def test_a_search_field_follows_links_and_the_address(console: Console, bus: Bus) -> None:
    """A link that removes the search empties its field, and one with a search fills it."""
    bus.notes("memory-find").add("The bank answers on Mondays only")
    bus.notes("memory-find").add("The user is in Lagos")
    window = console.open("#/memory?session=memory-find")
    field = window.get_by_label("Search the notes")
    field.press_sequentially("monday")
    expect(window.locator(".note")).to_have_count(1)
    expect(field).to_have_value("monday")
    window.get_by_role("link", name="memory-find").click()
    expect(window.locator(".note")).to_have_count(2)
    expect(field).to_have_value("")
    window.evaluate("location.hash = '#/memory?session=memory-find&find=lagos'")
    expect(field).to_have_value("lagos")
    expect(window.locator(".note")).to_have_count(1)


@pytest.mark.browser
def test_a_form_sent_again_after_lost_answers_writes_once(console: Console, bus: Bus) -> None:
    """The server may have written before the connection broke."""
    bus.notes("memory-lost").add("there already")
    console.sees_failures = True
    window = console.open("#/memory?session=memory-lost")
    keys: list[str] = []

    def lose_four_answers(route: Route) -> None:
        keys.append(route.request.headers["idempotency-key"])
        if len(keys) > 4:
            route.continue_()
            return
        if len(keys) == 1:
            route.fetch()
        route.abort()

    window.route("**/sessions/memory-lost/notes", lose_four_answers)
    window.get_by_role("button", name="Add a note").click()
    window.get_by_label("Content").fill("written once")
    window.get_by_role("button", name="Add", exact=True).click()
    expect(window.get_by_role("dialog").get_by_role("alert")).to_contain_text("did not answer", timeout=20_000)
    window.get_by_role("button", name="Add", exact=True).click()
    expect(window.get_by_role("dialog")).to_be_hidden()
    assert len(keys) == 5
    assert len(set(keys)) == 1
    assert [each.content for each in bus.notes("memory-lost").list().notes] == ["written once", "there already"]


@pytest.mark.browser
def test_many_tags_leave_the_notes_in_sight_on_a_phone(open_console: Opened, served: Served, bus: Bus) -> None:
    """They are one line that scrolls."""
    for number in range(12):
        bus.notes("memory-tags").add(f"note {number}", [f"topic-{number}-{each}" for each in range(5)])
    window = open_console(served, width=360, height=740).open("#/memory?session=memory-tags")
    expect(window.locator(".note-tags .chip")).to_have_count(60)
    expect(window.locator(".note").first).to_be_in_viewport()


@pytest.mark.browser
def test_the_actions_on_notes_and_todo_items_name_what_they_change(console: Console, bus: Bus) -> None:
    """Read out of context, as in a list of all buttons, they differ."""
    notes = bus.notes("memory-names")
    for content in ("The bank answers on Mondays only.", "x" * 100):
        notes.add(content)
    bus.todo("memory-names").write([{"id": "1", "content": "Ask the bank", "status": "pending"}])
    window = console.open("#/memory?session=memory-names")
    for verb in ("History of", "Correct", "Delete"):
        for name in ("The bank answers on Mondays only.", f"{'x' * 60} …"):
            expect(window.get_by_role("button", name=f"{verb} the note “{name}”", exact=True)).to_be_visible()
    window = console.open("#/memory?session=memory-names&tab=todo")
    for verb in ("Correct", "Delete"):
        expect(window.get_by_role("button", name=f"{verb} Ask the bank", exact=True)).to_be_visible()


@pytest.mark.browser
def test_a_long_todo_item_takes_the_whole_width_of_a_narrow_window(
    open_console: Opened, served: Served, bus: Bus
) -> None:
    """A short one stands beside its status."""
    items = [{"id": "1", "content": "Ask the bank " * 10}, {"id": "2", "content": "Call"}]
    bus.todo("memory-narrow").write(items)
    window = open_console(served, width=360, height=740).open("#/memory?session=memory-narrow&tab=todo")
    expect(window.locator(".todo-item")).to_have_count(2)
    long, short = window.locator(".todo-item").all()
    boxes = [each.bounding_box() for each in (long, long.locator(".todo-content"))]
    outer, inner = (box for box in boxes if box is not None)
    assert inner["width"] >= 0.9 * outer["width"]
    tops = short.evaluate("each => [...each.children].slice(0, 2).map(child => child.getBoundingClientRect())")
    assert tops[1]["left"] >= tops[0]["right"]
