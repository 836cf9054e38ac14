"""Dead letters of subscriptions, on the command line."""

from __future__ import annotations

import pytest

from scratchbus import Bus
from scratchbus.daemon.exit_codes import INVALID_INPUT, NOT_FOUND, USAGE
from tests.edges.conftest import Cli

pytestmark = pytest.mark.real


@pytest.fixture
def dead_letters(cli: Cli, bus: Bus) -> list[str]:
    """The positions of two dead letters, of a subscription named like the page."""
    for n in range(2):
        cli.add(f"{n}")
    with bus.subscribe(cli.page, pages=[cli.page], max_attempts=1) as deliveries:
        positions = []
        for delivery in (next(deliveries), next(deliveries)):
            delivery.fail("no\x1b[2J way")
            positions.append(str(delivery.position))
    return positions


def test_dead_letters_are_listed_in_order(cli: Cli, dead_letters: list[str]):
    found = cli.json("dead-letters", "ls", cli.page).documents
    assert [(each["position"], each["page"], each["attempts"]) for each in found] == [
        (position, cli.page, 1) for position in dead_letters
    ]
    lines = cli("dead-letters", "ls").out.splitlines()
    ours = [line for line in lines if cli.page in line]
    assert len(ours) == 2
    assert dead_letters[0] in ours[0]
    assert "\x1b" not in ours[0]


def test_dead_letters_are_retried_or_dropped(cli: Cli, bus: Bus, dead_letters: list[str]):
    assert cli.json("dead-letters", "retry", cli.page, dead_letters[1]).document == {
        "subscription": cli.page,
        "retried": 1,
    }
    assert cli("dead-letters", "drop", cli.page, "--all").out == f"dropped 1 dead letter of {cli.page}\n"
    assert cli.json("dead-letters", "ls", cli.page).documents == []
    with bus.subscribe(cli.page, pages=[cli.page]) as deliveries:
        delivery = next(deliveries)
        assert str(delivery.position) == dead_letters[1]
        delivery.ack()
    assert cli("dead-letters", "ls", cli.page).err == "There are no dead letters\n"


def test_retry_without_positions_retries_all(cli: Cli, dead_letters: list[str]):
    assert cli("dead-letters", "retry", cli.page).out == f"retried 2 dead letters of {cli.page}\n"


def test_missing_or_unnamed_dead_letters_are_refused(cli: Cli, dead_letters: list[str]):
    for verb in ("retry", "drop"):
        assert cli("dead-letters", verb, "nobody", "--all").code == NOT_FOUND
        assert cli("dead-letters", verb, cli.page, "1-1").code == NOT_FOUND
        assert cli("dead-letters", verb, cli.page, "nonsense").code == INVALID_INPUT
        assert cli("dead-letters", verb, cli.page, dead_letters[0], "--all").code == USAGE
    assert cli("dead-letters", "drop", cli.page).code == USAGE
    assert cli("dead-letters", "ls", "nobody").code == NOT_FOUND
    assert len(cli.json("dead-letters", "ls", cli.page).documents) == 2
