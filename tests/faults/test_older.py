"""An earlier version of the code takes part in rounds, where there is one; where there is none, that is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.history import older
from tests.faults.history.judge import judge
from tests.faults.history.older import NoOlderVersion, check_out, default_revision
from tests.faults.history.round import play_round


def revision() -> str | None:
    try:
        return default_revision()
    except NoOlderVersion:
        return None


def test_a_revision_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(NoOlderVersion, match=r"no-such-revision|not a git repository|git is not installed"):
        check_out("no-such-revision", tmp_path)


def test_where_there_is_no_repository_there_is_no_older_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(older, "ROOT", tmp_path)
    with pytest.raises(NoOlderVersion, match="not a git repository"):
        default_revision()


@pytest.mark.real
@pytest.mark.faults
@pytest.mark.timeout(240)
@pytest.mark.skipif(revision() is None, reason="needs the repository, and an older version in it")
def test_two_versions_at_once_violate_nothing(tmp_path: Path) -> None:
    check_out(default_revision(), tmp_path)
    history = play_round(8.0, 7, older=tmp_path)
    assert {"publisher-1", "claimer-1", "worker-1", "projector-1"} <= history.older
    assert any(record.who.startswith("publisher-1") and record.what == "ok" for record in history.records)
    assert judge(history) == []
