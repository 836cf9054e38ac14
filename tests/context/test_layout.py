"""Sections within a budget: whole items, by priority, and how many were left out."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scratchbus.context import estimate_tokens
from scratchbus.context.layout import Section, lay_out
from scratchbus.errors import BudgetTooSmall


def words(text: str) -> int:
    return len(text.split())


def test_sections_that_fit_are_complete_and_in_order():
    laid = lay_out([Section("a", "# A"), Section("b", "# B", ["one", "two"])], 100, words)
    assert laid.text == "# A\n\n# B\none\ntwo"
    assert laid.tokens == 6
    assert laid.left_out == {}


def test_items_that_do_not_fit_are_left_out_and_counted():
    items = [f"item {number}" for number in range(100)]
    laid = lay_out([Section("b", "# B", items)], 30, words)
    assert laid.tokens <= 30
    assert laid.chosen["b"] == items[: len(laid.chosen["b"])]
    assert laid.text.endswith(f"({laid.left_out['b']} more left out for lack of room)")
    assert laid.left_out["b"] + len(laid.chosen["b"]) == 100


def test_an_item_larger_than_the_budget_is_skipped():
    laid = lay_out([Section("b", "# B", ["word " * 500, "short"])], 40, words)
    assert laid.chosen["b"] == ["short"]


def test_a_shorter_item_does_not_overtake_one_without_room():
    laid = lay_out([Section("b", "# B", ["word " * 10, "word " * 10, "word " * 12, "short"])], 40, words)
    assert laid.chosen["b"] == ["word " * 10, "word " * 10]


def test_an_item_that_fills_the_large_share_exactly_is_skipped():
    fits, half = "word " * 16, "word " * 15
    laid = lay_out([Section("b", "# B", [fits, half, "short"])], 40, words)  # of which 10 are for head and last line
    assert laid.chosen["b"] == [fits, "short"]


def test_separators_take_room_from_the_texts_after_them():
    sections = [Section("a", "a" * 100), Section("b", "b" * 198), Section("c", "ccc"), Section("d", "d" * 1_000)]
    assert lay_out(sections, 400, len).left_out == {"c": 1, "d": 1}  # of 300 for texts, two separators take 4


def test_a_strict_layout_is_refused_rather_than_cut():
    with pytest.raises(BudgetTooSmall, match="raise the budget") as caught:
        lay_out([Section("a", "word " * 50), Section("b", "# B", ["one"])], 20, words, strict=True)
    assert caught.value.needed == 50


def test_a_fixed_section_can_fill_the_whole_budget():
    laid = lay_out([Section("a", "word " * 20), Section("b", "# B", ["one"])], 20, words)
    assert laid.tokens == 20
    assert laid.left_out == {"b": 1}


def test_a_long_text_is_cut_to_leave_room_for_the_rest():
    long = "\n".join(f"line {number}" for number in range(200))
    laid = lay_out(
        [Section("a", "# A\nshort"), Section("n", long, advice="ask"), Section("b", "# B", ["one"])], 100, words
    )
    head, _, tail = laid.text.split("\n\n")[1].partition("\n(… ")
    assert laid.text.startswith("# A\nshort\n\nline 0\n")
    assert laid.text.endswith("\nline 199\n\n# B\none")
    assert (
        tail.partition(")\n")[0]
        == f"{len(long) - len(head) - len(tail.partition(')')[2]) + 1:,} characters left out here for lack of room; ask"
    )
    assert (laid.left_out, laid.chosen["b"]) == ({"n": 1}, ["one"])
    assert 90 <= laid.tokens <= 100


def test_a_long_line_is_cut_in_its_middle():
    laid = lay_out([Section("a", "x" * 1_000)], 200, len)
    assert re.fullmatch(r"x+\n\(… \d+ characters left out here for lack of room\)\nx+", laid.text)


def test_sections_without_room_are_counted_in_one_line():
    long = "word " * 20
    sections = [Section("a", "# A"), Section("b", long, ["one"] * 3), Section("c", long, ["two"])]
    laid = lay_out(sections, 12, words)
    assert laid.text == "# A\n\n(left out for lack of room: b 3, c 1)"
    assert laid.tokens == words(laid.text)
    assert lay_out(sections, 11, words).text == "# A"


def test_items_that_were_not_read_count_as_left_out():
    laid = lay_out([Section("b", "# B", ["one"], unread=3)], 100, words)
    assert laid.text == "# B\none\n(3 more left out for lack of room)"
    assert laid.left_out == {"b": 3}


def test_an_empty_section_is_left_out():
    assert lay_out([Section("a", "# A"), Section("b", "# B", [])], 100, words).text == "# A"


def test_a_section_exceeds_its_share_if_others_leave_room():
    many = [f"item {number}" for number in range(100)]
    laid = lay_out([Section("a", "# A", many, share=0.25), Section("b", "# B", many[:5])], 100, words)
    assert len(laid.chosen["b"]) == 5
    assert len(laid.chosen["a"]) > 25


texts = st.lists(st.text(max_size=60), max_size=12)


@pytest.mark.slow
@given(texts, texts, st.text(max_size=40), st.integers(0, 150))
def test_a_context_never_has_more_tokens_than_its_budget(some, others, fixed, budget):
    sections = [Section("f", f"# F {fixed}"), Section("a", "# A", some, share=0.3), Section("b", "# B", others)]
    laid = lay_out(sections, budget, estimate_tokens)
    assert ("f" in laid.left_out) == (estimate_tokens(f"# F {fixed}") > budget)
    assert laid.tokens == estimate_tokens(laid.text) <= budget
    assert len(laid.chosen.get("a", [])) + laid.left_out.get("a", 0) == len(some)
    for missing in re.findall(r"\((\d+) more left out", laid.text):
        assert int(missing) in laid.left_out.values()


def test_a_superadditive_counter_keeps_its_budget():
    def steep(text: str) -> int:
        return len(text) ** 2 // 50

    items = [f"item {number}" for number in range(50)]
    laid = lay_out([Section("b", "# B", items)], 200, steep)
    assert laid.tokens == steep(laid.text) <= 200
    assert laid.chosen["b"] == items[:8]  # the text has 95 characters, and may have 100
    laid = lay_out([Section("a", "# A", items, share=0.5), Section("b", "# B", items)], 200, steep)
    assert (len(laid.chosen["a"]), laid.left_out) == (2, {"a": 48, "b": 50})  # the last section loses its items first
    laid = lay_out([Section("a", "# A " + "word " * 500), Section("b", "# B", ["one"])], 200, steep)
    assert laid.tokens == steep(laid.text) <= 200


def test_a_coarse_counter_ends_the_layout():
    sections = [Section("own", "abc") for _ in range(20)]
    laid = lay_out(sections, 5, lambda text: len(text) // 4)  # it counts nothing for each section alone
    assert laid.tokens <= 5
    assert laid.text.startswith("abc\n\nabc")
