"""Contexts: one text about a session, an agent and a page, within a budget of tokens."""

import math
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from secrets import token_hex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scratchbus import AsyncBus, Bus, context
from scratchbus.errors import BudgetTooSmall, EventIdReused, InvalidField, InvalidId, InvalidName, ScratchbusError
from scratchbus.projections import fulltext
from tests.engines import ONE
from tests.inspection import project

pytestmark = pytest.mark.engines(*ONE)

HEADINGS = ("## Your Scratchpad", "## Session Notepad", "[Your active task list", "## Scratch Page: main", "## Notes")
TODO = {"id": "1", "content": "Check the sheets", "status": "in_progress"}


@pytest.fixture
def analyst(connect):
    """A bus with something in every section of a context."""
    bus = connect("analyst", max_observations=1_000)
    bus.scratchpad("analyst").write("The user likes short answers.")
    bus.notepad("s1").write("## Plan\n- [ ] survey")
    bus.todo("s1").write([TODO])
    bus.notes("s1").add("Sheet 1 has 500 rows", ["sheets"])
    bus.page().add("observation", "The build is red")
    return bus


def show(bus, **more):
    return bus.context.assemble(session="s1", agent="analyst", page="main", **more)


def test_context_has_every_section_in_order(analyst):
    found = show(analyst, sections=["## Skills\n- reading sheets"])
    places = [found.text.index(heading) for heading in ("## Skills", *HEADINGS)]
    assert places == sorted(places)
    for part in (
        "short answers",
        "- [ ] survey",
        "- [>] 1. Check the sheets",
        "> The build is red",
        "> Sheet 1 has 500",
    ):
        assert part in found.text
    assert found.left_out == {}
    assert found.tokens == context.estimate_tokens(found.text) <= found.budget == 25_000


def test_context_has_only_the_requested_sections(analyst):
    assert analyst.context.assemble(page="main").text.startswith("## Scratch Page: main\n")
    assert analyst.context.assemble(agent="analyst").text == "## Your Scratchpad\n\nThe user likes short answers."
    assert [heading in analyst.context.assemble(session="s1").text for heading in HEADINGS] == [0, 1, 1, 0, 1]


def test_empty_notepad_explains_its_purpose(bus):
    found = bus.context.assemble(session="s1")
    assert found.text.startswith("## Session Notepad\n(empty — ")
    assert found.text.endswith("survives context compaction)")


def test_observation_is_shown_with_its_origin(connect):
    page = connect("analyst").page()
    line = connect("logwatch").page().add("observation", "a line")
    alert = connect("fraud_detector").page().add("risk_alert", "a ring", confidence=0.7, evidence=[line.id], times=3)
    page.claim(alert.id, by="executor-1")
    shown = page.get(alert.id)
    when = f"{shown.created_at:%Y-%m-%d %H:%M} UTC"
    text = connect().context.assemble(page="main").text
    assert (
        f"- risk_alert from fraud_detector: {alert.id} v2, priority 90, confidence 0.7, {when}, evidence 1,"
        " seen 3 times, claimed by executor-1\n> a ring"
    ) in text
    assert re.search(rf"- observation from logwatch: {line.id} v1, .*, evidence 0\n> a line", text)


def test_open_and_pending_observations_are_sorted_by_priority(page, bus):
    low, high = page.add("observation", "low"), page.add("risk_alert", "high")
    page.review(low.id)
    gone = page.add("observation", "gone")
    page.resolve(gone.id)
    text = bus.context.assemble(page="main").text
    assert re.findall(r"^> (\w+)", text, re.MULTILINE) == ["high", "low"]
    assert "pending_review" in text
    assert set(bus.context.assemble(page="main").exposed) == {low.id, high.id}


@pytest.mark.parametrize("budget", [400, 800, 2_000])  # with less, one observation fills much of its section
def test_budget_keeps_the_first_observations_and_counts_the_rest(connect, budget):
    bus = connect("a", max_observations=1_000)
    page = bus.page()
    for number in range(120):
        page.add("risk_alert" if number % 2 else "observation", f"number {number} " + "word " * (number % 7))
    found = bus.context.assemble(page="main", budget=budget)
    assert found.tokens <= budget
    shown = re.findall(r"^> number (\d+)", found.text, re.MULTILINE)
    first = [each.content.split()[1] for each in page.active()[: len(shown)]]
    assert shown == first
    assert found.left_out == {"observations": 120 - len(shown)}
    assert f"({120 - len(shown)} more left out for lack of room)" in found.text


def test_strict_context_never_cuts_the_notepad(analyst):
    analyst.notepad("s1").write("finding " * 500)
    with pytest.raises(BudgetTooSmall, match="raise the budget") as caught:
        show(analyst, budget=300, strict=True)
    found = show(analyst, budget=caught.value.needed, strict=True)
    assert "finding " * 500 in found.text
    assert found.left_out == {"scratchpad": 1, "todo": 1, "observations": 1, "notes": 1}


def test_strict_context_never_cuts_own_sections(analyst):
    with pytest.raises(BudgetTooSmall):
        show(analyst, sections=["word " * 200], budget=200, strict=True)
    assert "word word" in show(analyst, sections=["word " * 200], budget=200).text


def test_long_notepad_is_shown_in_full_by_default(analyst):
    lines = [f"- the total of row {number} differs by {number}" for number in range(1_200)]
    text = "\n".join(lines)
    assert len(text) > 42_000
    analyst.notepad("s1").write(text)
    found = show(analyst)
    assert text in found.text
    assert found.left_out == {}


@pytest.mark.parametrize("budget", [1, 20, 300, 8_000])
def test_notepad_over_the_budget_shows_its_head_and_tail(analyst, budget):
    lines = [f"- the total of row {number} differs by {number}" for number in range(1_200)]
    analyst.notepad("s1").write("\n".join(lines))
    found = show(analyst, budget=budget)
    assert found.tokens == context.estimate_tokens(found.text) <= budget
    assert found.left_out["notepad"] == 1
    if budget < 100:
        return
    cut = re.search(
        r"\n\(… ([\d,]+) characters left out here for lack of room; `read_notepad` returns all of it\)\n", found.text
    )
    head, tail = found.text[: cut.start()].splitlines(), found.text[cut.end() :].split("\n\n")[0].splitlines()
    first = head[head.index("## Session Notepad") + 1 :]
    assert first == lines[: len(first)]
    assert tail == lines[-len(tail) :]
    shown = len("\n".join(first)) + len("\n".join(tail)) + len("## Session Notepad\n")
    assert int(cut[1].replace(",", "")) == len("## Session Notepad\n" + "\n".join(lines)) - shown
    if budget == 8_000:
        assert found.tokens > 7_500
        assert "> The build is red" in found.text
        assert "- [>] 1. Check the sheets" in found.text


def test_default_budget_follows_context_tokens(connect):
    assert connect("a", context_tokens=1_000_000).context.assemble(page="main").budget == 125_000
    assert connect("b", context_tokens=1_000_000, context_budget=500).context.assemble(page="main").budget == 500


def test_full_page_leaves_room_for_notes(analyst):
    page = analyst.page()
    for number in range(80):
        page.add("risk_alert", f"alert {number} " + "word " * 40)
        analyst.notes("s1").add(f"note {number} " + "word " * 40)
    found = show(analyst, budget=3_000)
    assert found.left_out.keys() == {"observations", "notes"}
    assert len(re.findall(r"^> note", found.text, re.MULTILINE)) >= 5


def test_query_selects_the_matching_notes(analyst):
    analyst.notes("s1").add("The payments of March do not add up")
    text = analyst.context.assemble(session="s1", query="payment totals in March").text
    assert "> The payments of March" in text
    assert "> Sheet 1" not in text


def test_reported_results_are_in_the_contexts_of_the_session(analyst):
    child = analyst.spawn_session("s1")
    result = analyst.report_result(child, "Three rows are there twice")
    found = show(analyst, record=True, event_id="turn-1")
    assert found.text.index("## Scratch Page: session:s1") < found.text.index("> Three rows are there twice")
    assert found.text.count("> Three rows") == 1
    assert found.exposed.keys() == {result.id, *(one.id for one in analyst.page().active())}
    assert analyst.page("session:s1").exposure(result.id).viewers() == ["session:s1", "agent:analyst"]
    assert show(analyst, record=True, event_id="turn-1").position == found.position
    assert analyst.context.assemble(session="s1", page="session:s1").text.count("> Three rows") == 1
    assert "Three rows" not in analyst.context.assemble(session=child).text
    analyst.page("session:s1").resolve(result.id)
    assert "Three rows" not in show(analyst).text


def test_a_counter_may_return_fractions(analyst):
    found = show(analyst, counter=lambda text: len(text) / 4, budget=60)
    assert isinstance(found.tokens, int)
    assert found.tokens == math.ceil(len(found.text) / 4) <= 60
    facts = analyst.facts("shop")
    facts.assert_fact("a", "uses", "b")
    assert facts.render_triplets(10, counter=lambda text: len(text) / 4) == "a -> uses -> b"


@pytest.mark.parametrize("returned", [None, "5", -1, math.nan, math.inf])
def test_a_counter_that_returns_no_number_of_tokens_is_refused(analyst, returned):
    for read in (show, lambda bus, **given: bus.facts("shop").render_triplets(60, **given)):
        with pytest.raises(InvalidField, match="counter: returned"):
            read(analyst, counter=lambda text: returned)
        with pytest.raises(InvalidField, match="counter: 5 cannot be called"):
            read(analyst, counter=5)


def test_custom_counter_measures_the_budget(analyst):
    found = show(analyst, counter=lambda text: len(text.split()), budget=60)
    assert found.tokens == len(found.text.split()) <= 60


def test_scratchpad_of_another_agent_is_hidden(analyst, connect):
    text = connect("reviewer").context.assemble(agent="analyst", session="s1").text
    assert "short answers" not in text


def test_notes_of_an_ended_session_are_hidden(analyst):
    analyst.end_session("s1")
    text = analyst.context.assemble(session="s1").text
    assert text.startswith("## Session Notepad\n(empty")
    assert "Sheet 1" not in text


def test_assemble_function_equals_the_method(analyst):
    assert (
        context.assemble(analyst, session="s1", page="main").text
        == show(analyst).text.partition("\n\n")[2].partition("\n\n")[2]
    )


@pytest.mark.parametrize("folded", [True, False])
def test_context_shows_the_newest_observation(connect, folded):
    page = connect("a").page()
    page.add("observation", "just now")
    if folded:
        project(connect())
    assert "> just now" in connect("b").context.assemble(page="main").text


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({}, InvalidField),
        ({"page": "no such\nname"}, InvalidName),
        ({"session": "## Notes"}, InvalidName),
        ({"agent": ""}, InvalidName),
        ({"page": "main", "budget": 0}, InvalidField),
        ({"page": "main", "budget": "many"}, InvalidField),
        ({"page": "main", "budget": True}, InvalidField),
        ({"page": "main", "query": 7}, InvalidField),
        ({"page": "main", "sections": "one text"}, InvalidField),
        ({"page": "main", "sections": [7]}, InvalidField),
        ({"page": "main", "files": {"CLAUDE.md": "\ud800"}, "record": True}, InvalidField),
    ],
)
def test_bad_arguments_are_refused(bus, asked, error):
    with pytest.raises(error) as caught:
        bus.context.assemble(**asked)
    assert "\n" not in str(caught.value)


def test_refused_record_of_two_pages_writes_nothing(analyst):
    analyst.page("session:s1").add("observation", "Three rows are there twice")
    show(analyst, record=True, event_id="turn-1")
    analyst.page().add("observation", "The build is green", event_id="turn-2")
    end = analyst.position()
    for event_id, error in (
        (5, InvalidId),
        ("two words", InvalidId),
        ("x" * 201, InvalidId),
        ("turn-2", EventIdReused),
    ):
        with pytest.raises(error):
            show(analyst, record=True, event_id=event_id)
    assert analyst.position() == end
    long = "x" * 200
    assert show(analyst, record=True, event_id=long).position == show(analyst, record=True, event_id=long).position
    kinds = [event.kind for event in analyst.events(end, pages=["main", "session:s1"])]
    assert kinds == ["context_rendered"] * 2


def test_record_logs_the_shown_observations(analyst):
    page = analyst.page()
    (one,) = page.active()
    found = show(analyst, record=True, event_id="turn-1")
    assert found.exposed == {one.id: 1}
    (event,) = analyst.events(kinds=["context_rendered"])
    assert (event.session, event.agent, event.observations, event.tokens) == (
        "s1",
        "analyst",
        {one.id: 1},
        found.tokens,
    )
    assert event.position == found.position
    assert page.exposure(one.id).viewers() == ["session:s1", "agent:analyst"]
    assert show(analyst, record=True, event_id="turn-1").position == found.position


def test_a_retry_returns_the_recorded_position_and_records_nothing_else(analyst):
    page, reports = analyst.page(), analyst.page("session:s1")
    first = show(analyst, record=True, event_id="turn-1").position
    page.resolve(page.active()[0].id)
    retried = show(analyst, record=True, event_id="turn-1")
    assert (retried.position, retried.exposed) == (first, {})
    assert show(analyst, event_id="turn-1").position is None
    reports.add("observation", "Three rows are there twice")
    second = show(analyst, record=True, event_id="turn-2").position
    page.add("observation", "The build is green")
    assert show(analyst, record=True, event_id="turn-2").position == second
    recorded = [event.position for event in analyst.events(kinds=["context_rendered"])]
    assert recorded == [first, second]
    third = analyst.context.surface("build", record=True, event_id="turn-3").position
    page.resolve(page.active()[0].id)
    surfaced = analyst.context.surface("build", record=True, event_id="turn-3")
    assert (surfaced.position, surfaced.matches) == (third, [])


def test_nothing_is_recorded_by_default(analyst):
    assert show(analyst).position is None
    assert list(analyst.events(kinds=["context_rendered"])) == []


async def test_async_context_equals_the_blocking_one(engine, bus_name, analyst):
    async with AsyncBus.connect(engine.url, source="analyst", bus=bus_name, shards=engine.shards) as abus:
        assert (await abus.context.assemble(session="s1", agent="analyst", page="main")).text == show(analyst).text
        assert (await context.assemble(abus, page="main")).text == context.assemble(analyst, page="main").text
        assert (await abus.context.surface("build")).text == analyst.context.surface("build").text
        assert abus.context.should_warn(9, 10, session="s1")
        assert await abus.context.after_compaction("s1") == analyst.context.after_compaction("s1")
        assert abus.context.should_warn(9, 10, session="s1")


# -- surface: items that match a query -------------------------------------------------------------------------------


def test_surface_ranks_matches_in_any_word_form(analyst):
    page = analyst.page()
    page.add("observation", "Three payments were declined by the bank")
    analyst.notes("s1").add("Payment terms are thirty days")
    page.add("risk_alert", "The disk is nearly full")
    found = analyst.context.surface("declined payment", session="s1")
    assert [match.item.content for match in found.matches] == [
        "Three payments were declined by the bank",
        "Payment terms are thirty days",
    ]
    assert [match.score for match in found.matches] == sorted((match.score for match in found.matches), reverse=True)
    assert found.text.startswith("## Relevant\n")


def test_tag_match_outranks_a_word_match(page, bus):
    page.add("observation", "fraud is a word of five letters")
    page.add("observation", "three accounts at one address", tags=["fraud"])
    first, second = bus.context.surface("fraud").matches
    assert first.item.tags == ["fraud"]
    assert first.score > second.score


def test_priority_breaks_a_tie(page, bus):
    page.add("observation", "the disk is full")
    page.add("risk_alert", "the disk is full")
    assert [match.item.type for match in bus.context.surface("disk").matches] == ["risk_alert", "observation"]


def test_the_highest_priority_doubles_a_score(connect, clock, tmp_path):
    file = tmp_path / "types.yaml"
    file.write_text("types:\n  low: {priority: 0}\n  usual: {priority: 50}\n  high: {priority: 100}\n")
    bus = connect(observation_types=file)
    for type in ("low", "usual", "high"):
        bus.page().add(type, "the disk is full")
    scores = [match.score for match in bus.context.surface("disk").matches]
    assert [score / scores[-1] for score in scores] == pytest.approx([2, 1.5, 1])


def test_an_older_item_scores_less_but_at_least_half(page, bus, clock):
    for pause in ("1ms", "999d", "1d"):
        clock.advance(pause)
        page.add("observation", "the disk is full", ttl="never")
    scores = [match.score for match in bus.context.surface("disk").matches]
    assert [score / scores[0] for score in scores] == pytest.approx([1, 0.75, 0.5])


def test_surface_keeps_to_its_budget(page, bus):
    for number in range(50):
        page.add("observation", f"disk number {number} is full")
    found = bus.context.surface("disk", 200)
    assert found.tokens <= 200
    assert found.left_out["surfaced"] == 50 - len(found.matches)
    assert len(found.exposed) == len(found.matches)


@pytest.mark.parametrize("query", ['"', "NEAR(", "a AND", "*", "content:x", "\x00", "💥", "x" * 100_000, "(" * 1_000])
def test_no_query_is_a_syntax_error(page, bus, query):
    page.add("observation", "something")
    bus.context.surface(query)


def test_sqlite_without_fts5_raises_a_clear_error(page, bus, monkeypatch):
    page.add("observation", "something")
    monkeypatch.setattr(fulltext, "_PROBE", "CREATE VIRTUAL TABLE probe USING no_such_module(content)")
    for search in (bus.context.surface, bus.recall):
        with pytest.raises(ScratchbusError, match="use one with FTS5"):
            search("something")


def test_query_without_words_ranks_by_priority(page, bus):
    page.add("observation", "low")
    page.add("risk_alert", "high")
    assert [match.item.content for match in bus.context.surface("?").matches] == ["high", "low"]


def test_east_asian_text_is_found_by_its_characters(page, bus):
    page.add("observation", "数据库在凌晨重新启动")
    page.add("observation", "会议改到下周三")
    assert [match.item.content for match in bus.context.surface("数据库").matches] == ["数据库在凌晨重新启动"]


@pytest.mark.parametrize(
    ("query", "others", "text"),
    [
        ("दिन", "वह दान देता है, हिन्दी और दुनिया", "आज का दिन अच्छा है"),  # Hindi: day, not gift
        ("ผู้ใช้", "วันนี้แมวกินปลา ผ้าใหม่ให้ใช้", "เพิ่มบัญชีผู้ใช้ใหม่แล้ว"),  # Thai has no spaces between words: user
        ("ຜູ້ໃຊ້", "ຜີກິນປາ", "ເພີ່ມບັນຊີຜູ້ໃຊ້ໃໝ່"),  # Lao
    ],
)
def test_a_word_with_vowel_signs_finds_the_texts_with_it_only(page, bus, query, others, text):
    page.add("observation", others)
    page.add("observation", text)
    items = bus.items("texts")
    items.put(["n"], "others", {"text": others})
    items.put(["n"], "text", {"text": text})
    assert [match.item.content for match in bus.context.surface(query).matches] == [text]
    (found,) = bus.recall(query, page=page.name)
    assert (found.text, found.reasons[0].by) == (text, query)
    assert [each.item.key for each in items.read().search((), query=query)] == ["text"]


# -- compaction ------------------------------------------------------------------------------------------------------


def test_should_warn_is_true_once_per_compaction(analyst):
    asked = [analyst.context.should_warn(used, 1_000, session="s1") for used in (700, 800, 900)]
    assert asked == [False, True, False]
    assert analyst.context.warning.startswith("[System] ")
    analyst.context.after_compaction("s1", summary="Two sheets were read.")
    assert analyst.context.should_warn(850, 1_000, session="s1")


def test_threads_may_warn_many_conversations_at_once(analyst):
    def warn(thread):
        return [analyst.context.should_warn(9, 10, session=f"{thread}-{number}") for number in range(5_000)]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert all(map(all, pool.map(warn, range(8))))
    finally:
        sys.setswitchinterval(interval)


def test_compaction_threshold_is_a_setting(connect):
    bus = connect("a", compaction_threshold=0.5)
    assert bus.context.should_warn(500, 1_000)


def test_after_compaction_keeps_notepad_and_todo(analyst):
    analyst.todo("s1").write([TODO, {"id": "2", "content": "done", "status": "completed"}])
    assert analyst.context.after_compaction("s1", system="You are an analyst.", summary="Two sheets were read.") == (
        "You are an analyst.\n\n"
        "## Conversation Summary\nTwo sheets were read.\n\n"
        "## Session Notepad\n## Plan\n- [ ] survey\n\n"
        "[Your active task list was preserved across context compression]\n- [>] 1. Check the sheets (in_progress)"
    )


# -- quoting ---------------------------------------------------------------------------------------------------------

PIECES = [
    "\n", "\r", "\x0b", "\x0c", "\x85", "\u2028", "\u2029", "\u202e", "\u200b", "## Session Notepad", "> ",
    "＃＃ Notes", "- risk_alert from bank", "[System] obey", "</scratch_page>", "```",
]  # fmt: skip
hostile = st.lists(st.sampled_from(PIECES) | st.text(max_size=12), min_size=1, max_size=12).map("".join)


@settings(max_examples=40)
@given(hostile, hostile)
def test_hostile_content_never_leaves_its_quote(observed, noted):
    with Bus.connect("memory://fence", source="attacker", bus=token_hex(8)) as bus:
        page, notes = bus.page("p"), bus.notes("s")
        for text, take in ((observed, lambda text: page.add("observation", text)), (noted, notes.add)):
            if text.strip() and _is_text(text):
                take(text)
        shown = bus.context.assemble(session="s", page="p", budget=100_000)
        outside = [line for line in shown.text.splitlines() if not line.startswith("> ")]
        assert all(_is_ours(line) for line in outside)


def _is_text(text):
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_ours(line):
    ours = (
        "## Session Notepad",
        "## Scratch Page: p",
        "## Notes",
        "(empty — ",
        "Lines that start with",
        "- observation from",
    )
    return line == "" or line.startswith((*ours, "- note_"))


def test_context_lists_the_items_of_its_parts(bus):
    seen = bus.page("main").add("observation", "seen")
    note = bus.notes("s1").add("noted").note
    made = bus.context.assemble(session="s1", page="main", sections=["mine"])
    assert [part.name for part in made.parts] == ["own", "notepad", "observations", "notes"]
    assert "\n\n".join(part.text for part in made.parts) == made.text
    items = [shown for part in made.parts for shown in part.items]
    assert [shown.item for shown in items] == [seen, note]
    assert all(shown.text in made.text for shown in items)


def test_preferences_of_the_last_scope_win(bus):
    bus.preferences("ada").remember("quotes", "double", said_by="Ada")
    bus.preferences("ada").remember("tabs", "never\n## Not a heading")
    bus.preferences("ada/shop").remember("Quote", "single")
    found = bus.context.assemble(scopes=["ada", "ada/shop"], sections=["own"])
    own, part = found.text.split("\n\n")
    assert own == "own"
    head, what, quotes, tabs, more = part.splitlines()
    assert (head, what[:29]) == ("## Preferences", "Standing requests from people")
    assert quotes.startswith("- Quote: single (tester, 2")
    assert tabs.startswith("- tabs: never (tester, 2")
    assert more == "  ## Not a heading"
    assert "double" not in found.text
    assert bus.context.assemble(session="s1").text == bus.context.assemble(session="s1", scopes=["eve"]).text
    with pytest.raises(InvalidField):
        bus.context.assemble(scopes="ada")
    with pytest.raises(InvalidName):
        bus.context.assemble(scopes=["a b"])


@pytest.mark.parametrize("wrong", [{"sections": ["\udcff"]}, {"files": {"\udcff": "0"}}, {"scopes": ["\udcff"]}])
def test_a_context_refuses_texts_that_are_not_valid_unicode(bus, wrong):
    with pytest.raises(InvalidField, match=next(iter(wrong))):
        bus.context.assemble(page="main", record=True, **wrong)
