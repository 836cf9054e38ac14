"""Keys and texts of preferences, and the section of a file that lists them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scratchbus.domain.memories import Preference
from scratchbus.domain.position import Position
from scratchbus.domain.preference_file import BEGIN, END, SyncedAt, find_section, merge, replaced
from scratchbus.domain.preferences import check_key, check_preference, meaning_of, subject_of
from scratchbus.errors import InvalidField, InvalidInput, TooLarge

PREFIX = "preference_"

characters = st.characters(exclude_categories=["Cs", "Cc", "Cf", "Zl", "Zp"])
keys = st.text(characters, min_size=1, max_size=30)
texts = st.text(characters | st.sampled_from("\n\t -*#"), min_size=1, max_size=80)


def preference(key: str, text: str) -> Preference:
    subject = subject_of(PREFIX, key)
    return Preference(id=subject, key=key, text=text, added_ms=1, added_seq=1, ms=1, seq=1)


def by_subject(*found: Preference) -> dict[str, Preference]:
    return {each.id: each for each in found}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Commit messages", "commit-message"),
        ("COMMIT_MESSAGES", "commit  message"),
        ("libraries", "library"),
        ("Boxes", "box"),
        ("keys", "key"),
        ("quotes in JS", "Quote in js!"),
        ("naïve", "nai\u0308ve"),
    ],
)
def test_equivalent_keys_are_one_key(one: str, other: str):
    assert meaning_of(one) == meaning_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("C++ style", "C style"),
        ("C# style", "C style"),
        ("status", "statu"),
        ("gas", "ga"),
        ("class", "clas"),
        ("a b", "b a"),
    ],
)
def test_different_keys_stay_distinct(one: str, other: str):
    assert meaning_of(one) != meaning_of(other)


def test_the_subject_of_a_stored_preference_never_changes():
    assert subject_of(PREFIX, "Quotes in JS") == "preference_52c7bb68ca9e3088"


@pytest.mark.parametrize(
    "key", ["", "  ", "...", "a\nb", "a\n", "a\x1b[2J", "a**b", "on scratchbus:preferences", "a\u200bb", 5, None]
)
def test_an_invalid_key_is_refused(key: object):
    with pytest.raises(InvalidField) as refused:
        check_key(key)
    assert refused.value.field == "key"


def test_blanks_of_a_key_become_single_spaces():
    assert check_key(" quotes \t in  JS ") == "quotes in JS"


def test_a_text_has_plain_line_ends_and_no_blanks_at_them():
    assert check_preference("\n one \r\n\r\ttwo\t\r") == "one\n\n\ttwo"


def test_keys_and_texts_have_length_limits():
    with pytest.raises(TooLarge, match="201 characters is over the limit of 200"):
        check_key("x" * 201)
    with pytest.raises(TooLarge, match="4001 characters"):
        check_preference("x" * 4001)


@pytest.mark.parametrize("text", ["", " \n ", END, "a\x00b", 5])
def test_an_invalid_text_is_refused(text: object):
    with pytest.raises(InvalidField):
        check_preference(text)


def checked(pair: tuple[str, str]) -> tuple[str, str] | None:
    try:
        return check_key(pair[0]), check_preference(pair[1])
    except InvalidInput:
        return None


pairs = st.tuples(keys, texts).map(checked).filter(bool)


@given(st.lists(pairs, max_size=5), st.text(characters | st.sampled_from("\n\r"), max_size=40), st.booleans())
def test_a_section_reads_back_and_the_rest_stays(found: list[tuple[str, str]], around: str, has_section: bool):
    held = by_subject(*(preference(key, text) for key, text in found))
    before = f"{around}\n{BEGIN}\n{END}\n{around}" if has_section else around
    synced = SyncedAt("3f1c0a9b", Position(5, 7, 2))
    text = replaced(before, find_section(before, PREFIX), "ada/shop", synced, held)
    section = find_section(text, PREFIX)
    assert {subject: (item.key, item.text) for subject, item in section.items.items()} == {
        subject: (each.key, each.text) for subject, each in held.items()
    }
    assert (section.scope, section.synced) == ("ada/shop", synced)
    assert text.startswith(around)
    assert not has_section or text.endswith(f"\n{around}")
    assert replaced(text, section, "ada/shop", synced, held) == text


def test_the_order_and_the_line_ends_of_a_file_are_kept():
    text = f"# Rules\r\n{BEGIN}\r\n- b: second\r\n* **a**: first\r\n  more\r\n{END}\r\nend"
    section = find_section(text, PREFIX)
    assert [(item.key, item.text) for item in section.items.values()] == [("b", "second"), ("a", "first\nmore")]
    held = by_subject(preference("a", "first\nmore"), preference("b", "second"), preference("c", "third"))
    after = replaced(text, section, "ada", None, held)
    assert after.replace("\r\n", "").count("\n") == 0
    assert after.index("- **b**") < after.index("- **a**") < after.index("- **c**")
    assert after.startswith(f"# Rules\r\n{BEGIN}\r\n")
    assert after.endswith(f"{END}\r\nend")


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_new_section_has_the_line_ends_of_the_file(newline: str):
    before = newline.join(["# Rules", "", "Be kind.", ""])
    after = replaced(before, find_section(before, PREFIX), "ada", None, by_subject(preference("a", "first")))
    assert after.startswith(before + newline + BEGIN + newline)
    assert after.endswith(END + newline)
    assert not {"\r", "\n"} & set(after.replace(newline, ""))


@pytest.mark.parametrize(
    ("inside", "message"),
    [
        ("always double quotes", "line 3: 'always double quotes' is not a preference"),
        ("- always double quotes", "line 3: '- always double quotes' is not a preference"),
        ("### Style", "line 3: '### Style' is not a preference"),
        ("- **a**: x\n- A: y", "lines 3 and 4: 'a' and 'A' are the same key"),
        ("- **a**:", "line 3: text: is empty"),
        ("- ...: x", "line 3: key: '...' names nothing"),
    ],
)
def test_an_invalid_line_is_named_in_the_error(inside: str, message: str):
    with pytest.raises(InvalidField) as refused:
        find_section(f"# Rules\n{BEGIN}\n{inside}\n{END}\n", PREFIX)
    assert message in str(refused.value)


@pytest.mark.parametrize("text", [BEGIN, END, f"{END}\n{BEGIN}", f"{BEGIN}\n{BEGIN}\n{END}", f"{BEGIN}\n{END}\n" * 2])
def test_unmatched_marks_are_refused(text: str):
    with pytest.raises(InvalidField, match="has these marks"):
        find_section(text, PREFIX)


def test_marks_inside_a_line_are_ignored():
    assert find_section(f"write {BEGIN} and {END}", PREFIX).items == {}


one, two, three = (preference("a", text) for text in ("one", "two", "three"))
NOTHING = None


@pytest.mark.parametrize(
    ("ours", "base", "theirs", "written", "is_conflict"),
    [
        (one, one, one, "nothing", False),
        (two, one, one, "two", False),
        (one, one, two, "nothing", False),
        (two, one, two, "nothing", False),
        (two, one, three, "two", True),
        (NOTHING, one, one, "forget", False),
        (NOTHING, one, two, "nothing", False),
        (two, one, NOTHING, "two", False),
        (one, one, NOTHING, "nothing", False),
        (one, NOTHING, NOTHING, "one", False),
        (NOTHING, NOTHING, one, "nothing", False),
        (one, NOTHING, two, "one", True),
    ],
)
def test_a_merge_takes_each_sides_changes_and_the_file_wins(ours, base, theirs, written, is_conflict):
    def side(found):
        return by_subject(found) if found else {}

    items = {subject: find_item(each) for subject, each in side(ours).items()}
    merged = merge(items, side(base), side(theirs))
    expected = {"nothing": [], "forget": [None]}.get(written, [written])
    assert [change.text for change in merged.changes] == expected
    assert merged.conflicts == (["a"] if is_conflict else [])


def test_a_merge_without_a_base_deletes_nothing():
    assert merge({}, None, by_subject(one)).changes == []


def find_item(each: Preference):
    (item,) = find_section(f"{BEGIN}\n- **{each.key}**: {each.text}\n{END}\n", PREFIX).items.values()
    return item
