from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import click
import pytest

from scratchbus.cli.arguments import pairs
from scratchbus.cli.output import paragraphs
from scratchbus.cli.root import root
from scratchbus.cli.text import ago, ahead, clock, compact, one_line, short, span

NOW = datetime(2026, 3, 14, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "now"), (0, "now"), (0.9, "now"), (1, "1s"), (59, "59s"), (180, "3m"), (7_200, "2h"), (7_199.9, "2h"),
        (86_400, "24h"), (604_799.9, "7d"), (31_536_000, "365d"),
    ],
)  # fmt: skip
def test_a_duration_is_shown_in_one_unit(seconds: float, text: str):
    assert span(seconds) == text


def test_ahead_and_ago_are_durations_and_no_end_is_empty():
    assert ahead(None, NOW) == ""
    assert ahead(NOW + timedelta(hours=2), NOW) == "2h"
    assert ago(NOW - timedelta(minutes=3), NOW) == "3m"


def test_the_clock_shows_the_date_of_another_day():
    assert len(clock(NOW, NOW)) == len("12:00:00")
    assert clock(NOW - timedelta(days=30), NOW).startswith("2026-02-")


def test_an_id_is_shortened_to_its_end():
    assert short("01M7YR8MB3MXGS4N6BSF10E4QF") == "SF10E4QF"


@pytest.mark.parametrize("char", ["\x1b", "\x07", "\x9b", "\u202e", "\x00"])
def test_control_characters_are_replaced(char: str):
    for shown in (one_line(f"a{char}[31mb"), paragraphs(f"a{char}[31mb"), compact({"a": char})):
        assert char not in shown


@pytest.mark.parametrize("text", ["👩\u200d👩\u200d👧", "می\u200cخواهم"])
def test_joined_emoji_and_letters_stay_joined(text: str):
    assert one_line(text) == paragraphs(text) == text
    assert text in compact({"a": text})


def test_one_line_and_paragraphs_normalize_white_space():
    assert one_line("one\n\ttwo\r\nthree ") == "one two three"
    assert paragraphs("one\n\ttwo\r\nthree") == "one\n    two\nthree"


def _groups(group: click.Group, context: click.Context) -> Iterator[tuple[str, str]]:
    """Yield the words and the help, 80 columns wide, of a group and of the groups in it."""
    yield context.command_path, group.get_help(context)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            with command.make_context(name, [], parent=context, resilient_parsing=True, terminal_width=78) as inner:
                yield from _groups(command, inner)


def test_a_group_without_a_list_has_no_ls():
    with root.make_context("scratchbus", [], resilient_parsing=True) as context:
        assert root.get_command(context, "systemd").get_command(context, "ls") is None


def test_no_description_of_a_command_is_truncated():
    with root.make_context("scratchbus", [], resilient_parsing=True, terminal_width=78) as context:
        helps = dict(_groups(root, context))
    assert "scratchbus mcp token" in helps
    lists = [line for text in helps.values() for line in text.splitlines() if line.startswith("  ")]
    assert [line for line in lists if line.endswith("...")] == []


def test_a_value_that_is_nested_too_deeply_is_refused():
    with pytest.raises(click.BadParameter, match="'deep' is nested too deeply"):
        pairs(click.Context(root), root.params[0], ["deep=" + "[" * 1_000_000])
