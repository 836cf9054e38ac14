"""Commits of a projection: one of several projectors wins, and only whole batches are folded."""

import threading

import pytest

from scratchbus import NewObservation
from scratchbus.engine.steps import Pause
from scratchbus.errors import LogRewound, PositionLost
from scratchbus.eventlog.checkpoint import Outcome
from scratchbus.readmodel.catch_up import await_fold, fold_once
from scratchbus.readmodel.projector import run_projector
from scratchbus.scheduling.expiry import sweep
from tests.engines import ALL
from tests.halted import Halted
from tests.inspection import assert_sound, documents, folded, forget, keys_of, project, send


def projector(bus):
    """Return one step of a projector, halted before it commits."""
    return Halted(bus, fold_once(bus.core.log, keys_of(bus).shard))


def commit(halted):
    """Resume a halted projector; return the outcome of its commit."""
    step, _ = halted.go_on()
    return step.outcome


def fill(page, count):
    return page.add_many([NewObservation(type="observation", content=f"{n}", tags=["t"]) for n in range(count)])


def test_the_slower_of_two_projectors_loses(connect):
    one, other = connect("one"), connect("other")
    fill(one.page(), 3)
    slow = projector(one)
    one.page().update(one.page().list()[0].id, tags=["u"])
    project(other)
    state = documents(other)
    assert commit(slow) is Outcome.LOST
    assert documents(other) == state == folded(other)


def test_a_second_commit_of_the_same_events_loses(bus, page):
    fill(page, 3)
    slow, quick = projector(bus), projector(bus)
    assert commit(quick) is Outcome.DONE
    assert commit(slow) is Outcome.LOST


def test_a_commit_on_a_replaced_log_is_refused(bus, page, clock):
    fill(page, 3)
    slow = projector(bus)
    forget(bus)
    fill(page, 3)
    assert commit(slow) is Outcome.REWOUND
    assert documents(bus) == {}
    project(bus)
    assert documents(bus) == folded(bus)


@pytest.mark.damages_the_log
def test_a_commit_is_refused_when_its_last_event_is_deleted(bus, page):
    fill(page, 3)
    slow, keys = projector(bus), keys_of(bus)
    ((id, _),) = send(bus, "XREVRANGE", keys.log, "+", "-", "COUNT", 1)
    send(bus, "XDEL", keys.log, id)
    assert commit(slow) is Outcome.REWOUND


@pytest.mark.damages_the_log
def test_a_commit_is_refused_when_its_last_event_is_replaced(bus, page):
    fill(page, 3)
    slow, keys = projector(bus), keys_of(bus)
    entries = send(bus, "XRANGE", keys.log, "-", "+")
    send(bus, "DEL", keys.log)
    for id, fields in entries:
        send(bus, "XADD", keys.log, id, *[b"another" if field == fields[1] else field for field in fields])
    assert commit(slow) is Outcome.REWOUND


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 100])
def test_a_batch_is_folded_whole_in_any_chunk_size(bus, page, chunk):
    fill(page, 1)
    fill(page, 3)
    fill(page, 2)
    shard, seen = keys_of(bus).shard, []
    while True:
        step, checkpoint = bus.converse(fold_once(bus.core.log, shard, chunk=chunk))
        seen.append(checkpoint.position.seq)
        if step.is_all:
            break
    assert set(seen) <= {1, 4, 6}
    assert documents(bus) == folded(bus)


def test_a_projector_refuses_another_log(bus, page):
    fill(page, 3)
    project(bus)
    checkpoint = send(bus, "GET", keys_of(bus).live)
    forget(bus)
    fill(page, 5)
    send(bus, "SET", keys_of(bus).live, checkpoint)
    with pytest.raises(LogRewound, match="folded from another log"):
        bus.converse(fold_once(bus.core.log, keys_of(bus).shard))
    forget(bus)


@pytest.mark.parametrize("count", [2, 3, 5], ids=["shorter", "equal", "longer"])
def test_a_rebuild_replaces_state_of_another_log(bus, page, count):
    gone = fill(page, 3)
    project(bus)
    for key in send(bus, "KEYS", f"{keys_of(bus).tag}*"):
        if b":p1:" not in key and b":checkpoint:" not in key:
            send(bus, "DEL", key)
    fill(page, count)
    with pytest.raises(LogRewound, match="run `scratchbus rebuild`"):
        bus.converse(fold_once(bus.core.log, keys_of(bus).shard))
    bus.rebuild()
    project(bus)
    assert documents(bus) == folded(bus)
    assert page.get(gone[0].id) is None


@pytest.mark.damages_the_log
def test_a_projector_reports_events_trimmed_before_the_fold(bus, page):
    fill(page, 3)
    project(bus)
    fill(page, 3)
    send(bus, "XTRIM", keys_of(bus).log, "MAXLEN", 2)
    with pytest.raises(PositionLost, match="the log was trimmed to"):
        bus.converse(fold_once(bus.core.log, keys_of(bus).shard))


@pytest.mark.damages_the_log
def test_a_trim_before_the_checkpoint_is_harmless(bus, page):
    fill(page, 3)
    project(bus)
    send(bus, "XTRIM", keys_of(bus).log, "MAXLEN", 1)
    fill(page, 2)
    project(bus)
    assert len(page.list()) == 5


def test_a_late_commit_does_not_restore_stale_documents(connect):
    """A projector stops before its commit and resumes after everything has changed."""
    bus = connect()
    page = bus.page()
    first = fill(page, 2)
    slow = projector(bus)
    for one in first:
        page.resolve(one.id)
    project(bus)
    page.clear_resolved([one.id for one in first])
    project(bus)
    assert commit(slow) is Outcome.LOST
    assert page.list() == []
    assert page.list(stale_ok=True) == []


@pytest.mark.engines(*ALL)
def test_a_long_run_of_additions_folds_in_one_step(connect):
    bus = connect(max_observations=2_000)
    page = bus.page()
    kinds = "observation", "risk_alert", "dependency"
    for first in (0, 600):
        page.add_many(
            [
                NewObservation(
                    type=kinds[n % 3],
                    content=f"{n}",
                    tags=["all", f"of-{n % 7}"],
                    ttl="never" if n % 5 == 0 else f"{n}h",
                )
                for n in range(first, first + 600)
            ]
        )
    step, _ = bus.converse(fold_once(bus.core.log, keys_of(bus).shard, chunk=2_000))
    assert (step.events, step.is_all, step.outcome) == (1_200, True, Outcome.DONE)
    assert documents(bus) == folded(bus)
    assert_sound(bus)
    assert len(page.list(tags=["all"], limit=None)) == 1_200
    alerts = page.list(type="risk_alert", tags=["of-3"], limit=None)
    assert [int(each.content) for each in alerts] == [n for n in range(1_199, -1, -1) if n % 3 == 1 and n % 7 == 3]


@pytest.mark.engines(*ALL)
def test_additions_between_other_events_are_folded_and_indexed(bus, page):
    (changed,) = fill(page, 1)
    project(bus)
    for n in range(4):
        page.update(changed.id, tags=[f"u{n}"])
        page.add("reminder", f"{n}", owner="agent", tags=["b"], ttl="1h" if n % 2 else "never")
    bus.page("other").add("observation", "elsewhere", tags=["b"])
    project(bus)
    assert documents(bus) == folded(bus)
    assert_sound(bus)
    assert [each.content for each in page.list(owner="agent", tags=["b"])] == ["3", "2", "1", "0"]


def pauses_of(bus, conversation, at_third):
    """Run a conversation; call `at_third` at its third pause; return how many pauses there were."""

    def counting():
        pauses, reply = 0, None
        while True:
            try:
                request = conversation.send(reply)
            except StopIteration:
                return pauses
            if isinstance(request, Pause):
                pauses, reply = pauses + 1, None
                if pauses == 3:
                    at_third()
            else:
                reply = yield request

    return bus.converse(counting())


def test_await_fold_leaves_the_fold_to_a_working_projector(connect):
    bus, other = connect("one"), connect("other")
    fill(bus.page(), 3)
    waiting = await_fold(bus.core.log, keys_of(bus).shard, patience=60)
    assert pauses_of(bus, waiting, lambda: project(other)) == 3
    assert documents(bus) == folded(bus)


def test_await_fold_folds_after_its_patience_ends(bus, page):
    fill(page, 3)
    waiting = await_fold(bus.core.log, keys_of(bus).shard, patience=0.1)
    assert pauses_of(bus, waiting, lambda: None) > 3
    assert len(documents(bus)) == 3
    assert pauses_of(bus, await_fold(bus.core.log, keys_of(bus).shard, patience=60), lambda: None) == 0


def test_an_expirer_without_a_projector_waits_once(bus):
    assert pauses_of(bus, sweep(bus.core, patience=60), lambda: None) == 0
    for number in range(20):  # on all shards
        fill(bus.page(f"page-{number}"), 1)
    assert 0 < pauses_of(bus, sweep(bus.core, patience=0.1), lambda: None) < 10
    assert len(documents(bus)) == 20


@pytest.mark.damages_the_log
def test_await_fold_reports_another_log(bus, page):
    fill(page, 3)
    project(bus)
    send(bus, "DEL", keys_of(bus).log, keys_of(bus).tail)
    fill(page, 1)
    with pytest.raises(LogRewound):
        bus.converse(await_fold(bus.core.log, keys_of(bus).shard, patience=0.1))


@pytest.mark.engines("embedded-4-shards")
@pytest.mark.damages_the_log
def test_a_trimmed_shard_does_not_stop_the_projection_of_the_others(bus):
    log = bus.core.log
    pages = {log.shard(name): bus.page(name) for name in map("p{}".format, range(50))}
    for page in pages.values():
        fill(page, 2)
    send(bus, "XTRIM", log.keys(0).log, "MAXLEN", 1)
    with pytest.raises(PositionLost):
        run_projector(bus, threading.Event())
    assert [shard.lag for shard in bus.status().shards] == [2, 0, 0, 0]
