"""An earlier version of the code takes part in rounds; a missing one is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.history import older
from tests.faults.history.judge import judge
from tests.faults.history.older import NoOlderVersion, check_out, default_revision
from tests.faults.history.round import play_round


def test_a_missing_revision_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NoOlderVersion, match=r"no-such-revision|not a git repository|git is not installed"):
        check_out("no-such-revision", tmp_path)


def test_a_missing_repository_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(older, "ROOT", tmp_path)
    with pytest.raises(NoOlderVersion, match="not a git repository"):
        default_revision()


@pytest.mark.real
@pytest.mark.faults
@pytest.mark.timeout(400)
def test_a_checked_out_version_plays_a_round_without_violations(tmp_path: Path) -> None:
    try:
        check_out("HEAD", tmp_path)
    except NoOlderVersion as problem:
        pytest.skip(str(problem))
    history = play_round(8.0, 7, older=tmp_path)
    assert {"publisher-1", "claimer-1", "worker-1", "projector-1"} <= history.older
    assert any(record.who.startswith("publisher-1") and record.what == "ok" for record in history.records)
    assert judge(history) == []
