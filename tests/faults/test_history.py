"""Short rounds of faults have no violation, and the judge finds violations planted in records, logs and code."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.history.arena import Arena
from tests.faults.history.case import Case, History, Violation, Write
from tests.faults.history.journal import Record
from tests.faults.history.judge import KINDS, judge, violations
from tests.faults.history.judge_heads import judge_heads
from tests.faults.history.judge_reads import judge_reads
from tests.faults.history.logbook import Entry, Logbook
from tests.faults.history.plan import DECK, draw, playable
from tests.faults.history.roles import CREW
from tests.faults.history.round import play_round
from tests.faults.history.sabotage import SABOTAGE
from tests.faults.machines import compiler
from tests.faults.servers import Server, embedded_binary

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(400),
]  # on a slow machine, rounds wait until every role has done enough

SECONDS, SEED = 7.0, 163285
"""A short round with this seed has faults of every kind."""


@pytest.fixture(scope="module")
def round_without_violations() -> bytes:
    """A pickled round with every kind of fault: each test gets a copy to tamper with."""
    return pickle.dumps(play_round(SECONDS, SEED))


@pytest.fixture
def history(round_without_violations: bytes) -> History:
    copy: History = pickle.loads(round_without_violations)  # noqa: S301  # our own data
    return copy


@pytest.mark.slow
def test_a_round_of_all_faults_has_no_violation(history: History) -> None:
    tally = Counter[str]()
    assert judge(history, tally) == []
    assert {fault.kind for fault in draw(SEED, SECONDS, CREW)} == DECK.keys()
    assert {fault.kind for fault in draw(SEED, SECONDS, CREW, playable())} == set(playable())
    failovers = {"failover", "late failover", "skewed failover"} & set(playable())
    assert [reign.by for reign in history.reigns].count("failover") == len(failovers), "one of them with writes lost"
    assert tally["observations linearized"] > 20
    assert not tally["observations undecided"] + tally["observations skipped"]


@pytest.mark.slow
@pytest.mark.skipif(compiler() is None, reason="needs a C compiler on Linux")
def test_a_round_cuts_power_and_skews_clocks(history: History) -> None:
    assert history.did["power cut"] > 0
    assert len({reign.skew for reign in history.reigns}) > 1


def test_the_same_seed_draws_the_same_faults() -> None:
    assert draw(7, 30, CREW) == draw(7, 30, CREW) != draw(8, 30, CREW)
    assert {fault.kind for fault in draw(7, 30, CREW)} == DECK.keys()


# -- tampering -----------------------------------------------------------------------------------------------------


def last_log(history: History) -> Logbook:
    return history.reigns[-1].log


def edit_log(history: History, change: Callable[[list[Entry]], object]) -> None:
    """Change the last log."""
    entries = list(last_log(history).entries)
    change(entries)
    history.reigns[-1] = history.reigns[-1]._replace(log=Logbook(entries))


def edit(history: History, record: Record, **told: Any) -> None:
    """Change the data of a record."""
    history.records[history.records.index(record)] = record._replace(told=record.told | told)


def add(history: History, record: Record, **changes: Any) -> None:
    """Add a changed copy of a record."""
    history.records.append(record._replace(**changes))
    history.records.sort(key=lambda each: each.t)


def told(history: History, what: str, **fields: Any) -> list[Record]:
    """Return the records of a kind with these fields that belong to the last log only."""
    begun, log = history.reigns[-1].begun[1], last_log(history)
    return [
        record for record in history.records
        if record.what == what and record.told.get("begun", record.t) > begun and fields.items() <= record.told.items()
        if "at" not in record.told or log.has(record.told["at"])
    ]  # fmt: skip


def last_acknowledged_write(history: History) -> Write:
    """Return the last acknowledged write that can be identified by its mark."""
    case = Case(history)
    return next(
        write for write in reversed(case.writes)
        if write.answer.what == "ok" and case.settled(*write.span) == len(case.reigns) - 1 and write.told["mark"]
    )  # fmt: skip


def lose_an_acknowledged_write(history: History) -> None:
    case, number = Case(history), len(history.reigns) - 1
    lost = case.entries_of(last_acknowledged_write(history), number)

    def lose(entries: list[Entry]) -> None:
        for entry in lost:
            entries.remove(entry)

    edit_log(history, lose)


def duplicate_an_event(history: History) -> None:
    def again(entries: list[Entry]) -> None:
        entries.append(entries[-1]._replace(seq=entries[-1].seq + 1))

    edit_log(history, again)


def forget_resets(history: History) -> None:
    """Remove all resets of subscriptions, so that no cursor may go back.

    A consumer that asked for a reset under an earlier primary may still be waiting for the other one's lease.
    """
    for session in [record for record in history.records if record.what == "session" and record.told["reset"]]:
        edit(history, session, reset=False)


def deliver_an_acked_event_again(history: History) -> None:
    forget_resets(history)
    sample = told(history, "sample", sub="everything")[-1]
    handed = told(history, "handed", sub="everything")[0]
    add(
        history,
        handed,
        what="session",
        who="subscriber-1.99",
        t=sample.t + 0.001,
        told={"sub": "everything", "reset": False},
    )
    add(history, handed, who="subscriber-1.99", t=sample.t + 0.002)


def turn_back_the_clock(history: History) -> None:
    edit_log(history, lambda entries: entries.append(entries[-1]._replace(ms=1, seq=entries[-1].seq + 1, id="new")))


def turn_back_a_reader(history: History) -> None:
    first, *_, last = told(history, "read")
    add(history, first, t=last.t + 0.002, told=first.told | {"begun": last.t + 0.001})


def turn_back_a_cursor(history: History) -> None:
    forget_resets(history)
    last = told(history, "sample", sub="everything")[-1]
    add(history, last, t=last.t + 0.001, told=last.told | {"begun": last.t, "seq": last.told["seq"] - 1})


def turn_back_a_view(history: History) -> None:
    first, *_, last = told(history, "saw")
    add(history, first, who=last.who, t=last.t + 0.001, told=first.told | {"floor": None})


def skip_a_delivery(history: History) -> None:
    at = told(history, "handed", sub="everything")[5].told["at"]
    handed = [record for record in history.records if record.what == "handed" and record.told["at"] == at]
    for record in handed:  # also under an earlier primary that had the same event
        if record.told["sub"] == "everything":
            history.records.remove(record)


def skip_a_change(history: History) -> None:
    history.records.remove(told(history, "change")[5])


def skip_in_following(history: History) -> None:
    history.records.remove(told(history, "followed")[5])


def claim_answers(history: History) -> list[Record]:
    """Return the answers that granted a new claim."""
    new = {(asked.who, asked.told["n"]) for asked in told(history, "invoke", call="claim", fence=None)}
    return [answer for answer in told(history, "ok") if (answer.who, answer.told["n"]) in new]


def grant_a_claim_twice(history: History) -> None:
    claim = claim_answers(history)[0]
    asked = next(each for each in told(history, "invoke", n=claim.told["n"]) if each.who == claim.who)
    for record in (asked, claim):
        add(history, record, who="claimer-1.99", t=record.t + 0.0001)


def grant_overlapping_claims(history: History) -> None:
    claim = max(
        claim_answers(history), key=lambda claim: claim.told["until"] - claim.ms
    )  # one that had not ended when it was answered
    asked = next(each for each in told(history, "invoke", n=claim.told["n"]) if each.who == claim.who)
    log = last_log(history)
    end, first = log.entries[-1], log.by_id[asked.told["event_id"]]
    edit_log(history, lambda entries: entries.append(first._replace(ms=end.ms, seq=end.seq + 1, id="new")))
    second = last_log(history).turns[end.seq + 1].after
    add(history, claim, what="job", who="worker-1.99", t=claim.t + 0.001, ms=claim.ms + 0.001,
        told={"id": asked.told["id"], "fence": second.fence, "until": second.until})  # fmt: skip


def hand_out_an_unwritten_job(history: History) -> None:
    job = told(history, "job")[0]
    edit(history, job, until=job.told["until"] + 1)


def first_fenced_update(history: History) -> Write:
    case = Case(history)
    number = len(case.reigns) - 1
    return next(
        write for write in case.writes
        if write.told["call"] == "update" and write.told.get("fence") and case.entries_of(write, number)
    )  # fmt: skip


def forge_a_fence(history: History) -> None:
    write = first_fenced_update(history)
    edit(history, write.asked, fence=write.told["fence"] - 1)


def lend_a_fence(history: History) -> None:
    write = first_fenced_update(history)

    def claim_as_another(entries: list[Entry]) -> None:
        for at, entry in enumerate(entries):
            if (entry.subject, entry.kind) == (write.told["id"], "claimed"):
                body = entry.text.replace(f'"holder":"{write.who}"', '"holder":"claimer-1.99"')
                entries[at] = entry._replace(text=body)

    edit_log(history, claim_as_another)


def forge_a_version(history: History) -> None:
    case = Case(history)
    number = len(case.reigns) - 1
    write = next(write for write in case.writes if write.told.get("expected") and case.entries_of(write, number))
    edit(history, write.asked, expected=write.told["expected"] - 1)


def close_twice(history: History) -> None:
    """Close an observation a second time that has stayed closed."""
    turns = last_log(history).turns.values()
    last = {turn.entry.about: turn.after.status for turn in turns}
    closing = next(
        turn.entry for turn in reversed(turns)
        if turn.entry.kind == "status_changed"
        if turn.after.status == last[turn.entry.about] in {"resolved", "archived"}
    )  # fmt: skip

    def again(entries: list[Entry]) -> None:
        entries.append(closing._replace(ms=entries[-1].ms, seq=entries[-1].seq + 1, id="new"))

    edit_log(history, again)


def read_old_rows(history: History) -> None:
    first, *_, last = told(history, "read")
    edit(history, last, rows=first.told["rows"])


def read_a_part_of_the_page(history: History) -> None:
    last = told(history, "read")[-1]
    edit(history, last, rows=last.told["rows"][1:])


def see_a_wrong_version(history: History) -> None:
    last = told(history, "saw")[-1]
    (id, version, seq), *rest = last.told["rows"]
    edit(history, last, rows=[[id, version + 1, seq + 1], *rest])


def refuse_a_write_in_the_log(history: History) -> None:
    answer = last_acknowledged_write(history).answer
    history.records[history.records.index(answer)] = answer._replace(what="refused")


def edit_a_document(history: History) -> None:
    subject, state = next(iter(history.documents.items()))
    history.documents[subject] = type(state)(state.version + 1)


def lose_an_update(history: History) -> None:
    """Have two writers report the same version of an observation."""
    number = len(history.reigns) - 1
    case = Case(history)
    write = next(
        write for write in reversed(case.writes)
        if write.told["call"] == "update" and write.answer.what == "ok" and case.settled(*write.span) == number
        if write.answer.told.get("version") and not write.is_ambiguous and case.entries_of(write, number)
    )  # fmt: skip
    for record in (write.asked, write.answer):
        changed = {"mark": "another", "event_id": "another"} if record.what == "invoke" else {}
        add(history, record, who="publisher-9.0", told=record.told | changed)


def accept_a_stale_read(history: History) -> None:
    """Have a reader see the previous version of observations."""
    last = next(
        read for read in reversed(told(history, "read")) if any(version > 1 for _, version, _ in read.told["rows"])
    )
    seen = Counter(
        (id, version) for read in told(history, "read") if read.t < last.told["begun"]
        for id, version, _ in read.told["rows"]
    )  # fmt: skip
    rows = [
        [id, version - 1, seq] if seen[id, version] else [id, version, seq] for id, version, seq in last.told["rows"]
    ]
    assert rows != last.told["rows"]
    edit(history, last, rows=rows)


def use_the_fence_of_another(history: History) -> None:
    """Attribute a fenced write to a process that does not hold the claim."""
    case, number = Case(history), len(history.reigns) - 1
    write = next(
        write for write in case.writes
        if write.told["call"] == "update" and write.told.get("fence") and write.answer.what == "ok"
        if case.settled(*write.span) == number
    )  # fmt: skip
    for record in (write.asked, write.answer):
        history.records[history.records.index(record)] = record._replace(who="publisher-9.0")


def report_an_unsound_head(history: History) -> None:
    history.unsound.append("a head that does not follow from the log")


def report_stuck_readers(history: History) -> None:
    history.stuck.append("the readers make no progress")


def crash_a_process(history: History) -> None:
    add(history, history.records[-1], what="crashed", told={"trace": ""})


PLANTS: dict[Callable[[History], None], str] = {
    lose_an_acknowledged_write: "lost",
    hand_out_an_unwritten_job: "lost",
    duplicate_an_event: "duplicated",
    deliver_an_acked_event_again: "duplicated",
    turn_back_the_clock: "non-monotonic",
    turn_back_a_reader: "non-monotonic",
    turn_back_a_cursor: "non-monotonic",
    turn_back_a_view: "non-monotonic",
    skip_a_delivery: "skipped",
    skip_a_change: "skipped",
    skip_in_following: "skipped",
    grant_a_claim_twice: "split claim",
    grant_overlapping_claims: "split claim",
    forge_a_fence: "fence violated",
    lend_a_fence: "fence violated",
    forge_a_version: "transition won twice",
    close_twice: "transition won twice",
    read_old_rows: "stale read",
    read_a_part_of_the_page: "torn read",
    see_a_wrong_version: "torn read",
    refuse_a_write_in_the_log: "refused and written",
    lose_an_update: "not linearizable",
    accept_a_stale_read: "not linearizable",
    use_the_fence_of_another: "not linearizable",
    edit_a_document: "state != fold",
    report_an_unsound_head: "state != fold",
    report_stuck_readers: "stuck",
    crash_a_process: "unexpected error",
}


def test_every_kind_of_violation_is_planted() -> None:
    assert set(PLANTS.values()) == set(KINDS)


@pytest.mark.slow
@pytest.mark.parametrize("plant", PLANTS)
def test_the_judge_finds_each_planted_violation(history: History, plant: Callable[[History], None]) -> None:
    plant(history)
    assert any(violation.kind == PLANTS[plant] for violation in violations(history))


@pytest.mark.slow
def test_a_duplicated_claim_is_not_linearizable(history: History) -> None:
    grant_a_claim_twice(history)
    assert "not linearizable" in {violation.kind for violation in judge_heads(Case(history))}


@pytest.mark.slow
def test_a_job_of_a_flushed_log_is_no_claim_in_the_next(history: History) -> None:
    claim = claim_answers(history)[0]
    asked = next(each for each in told(history, "invoke", n=claim.told["n"]) if each.who == claim.who)
    job = {"id": asked.told["id"], "fence": claim.told["fence"], "until": claim.told["until"] - 500}
    add(history, claim, what="job", who="worker-1.99", told=job)
    assert list(judge_heads(Case(history))) == []


@pytest.mark.slow
def test_a_view_is_judged_by_its_own_log(history: History) -> None:
    before, saw = (record for record in told(history, "saw")[-2:])
    reign = history.reigns[-1]
    entries = [
        entry._replace(id="other", subject="other", batch="1/2") if entry.seq == saw.told["at"][1] else entry
        for entry in reign.log.entries
    ]
    history.reigns.append(reign._replace(log=Logbook(entries), begun=(before.t, before.t)))
    assert [found for found in judge_reads(Case(history)) if found.where == saw.who] == []


@pytest.mark.slow
def test_the_head_checker_counts_skipped_and_undecided_ones(history: History) -> None:
    tally = Counter[str]()
    assert list(judge_heads(Case(history), tally, seconds=-1)) == []
    assert tally["observations skipped"] > 20
    tally = Counter[str]()
    assert list(judge_heads(Case(history), tally, steps=2)) == []
    assert tally["observations undecided"] > 0


@pytest.mark.slow
def test_an_older_version_may_stop_only_with_code_too_old(history: History) -> None:
    for who, trace in (
        ("worker-1.0", "CodeTooOld: …"),
        ("worker-1.1", "TypeError: …"),
        ("worker-0.0", "CodeTooOld: …"),
    ):
        add(history, history.records[-1], who=who, what="crashed", told={"trace": trace})
    history.older = frozenset({"worker-1"})
    assert [violation.where for violation in judge(history)] == ["worker-1.1", "worker-0.0"]


def test_a_round_with_a_foreign_replica_fails(tmp_path: Path) -> None:
    stranger = Server(embedded_binary(), tcp=True)
    try:
        with Arena(SEED, tmp_path) as arena:
            arena.do("kill engine", 0)
            stranger.start().follow(arena.primary)
            with pytest.raises(AssertionError, match="of another run"):
                arena.do("kill engine", 0)
    finally:
        stranger.close()


# -- sabotage -----------------------------------------------------------------------------------------------------


ROUNDS = 6
"""The maximum number of rounds of sabotaged code: on a slow machine, little happens in one."""


BREACHES: dict[str, tuple[str, str]] = {
    "subscriber skips events": ("skipped", "everything"),
    "script ignores fences": ("fence violated", "claimer"),
    "script ignores claims": ("split claim", ""),
    "client retries with a new id": ("duplicated", "publisher"),
    "client trusts the primary": ("lost", "publisher"),
    "client returns old answers": ("non-monotonic", "reader"),
    "fold skips links": ("state != fold", "('main'"),
}
"""The kind of violation that each sabotage must cause, and where."""


def is_breach(found: Violation, sabotage: str) -> bool:
    kind, where = BREACHES[sabotage]
    return found.kind == kind and found.where.startswith(where)


@pytest.fixture(scope="module")
def sabotaged() -> list[Violation]:
    """Play rounds of sabotaged code, each with a failover, until every sabotage shows; return all violations."""
    found: list[Violation] = []
    for number in range(ROUNDS):
        found += judge(play_round(0.9, SEED + number, ("late failover",), list(SABOTAGE)))
        if all(any(is_breach(each, sabotage) for each in found) for sabotage in BREACHES):
            break
    return found


def test_every_sabotage_has_an_expected_violation() -> None:
    assert BREACHES.keys() == SABOTAGE.keys()


@pytest.mark.slow
@pytest.mark.parametrize("sabotage", BREACHES)
def test_the_judge_detects_each_sabotage(sabotaged: list[Violation], sabotage: str) -> None:
    assert any(is_breach(found, sabotage) for found in sabotaged)
