"""Recall by meaning with the model that comes in a package."""

from __future__ import annotations

import socket
import sqlite3
import sys
from itertools import chain
from math import fsum, isfinite

import pytest

from scratchbus import Bus
from scratchbus.adapters.wordllama import WordLlamaEmbedder
from scratchbus.errors import ScratchbusError


@pytest.fixture
def embedder(monkeypatch: pytest.MonkeyPatch) -> WordLlamaEmbedder:
    def refuse(*where: object) -> None:
        raise AssertionError(f"the embedder resolved {where}")

    pytest.importorskip("wordllama")
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return WordLlamaEmbedder()


def test_similar_texts_have_near_vectors(embedder: WordLlamaEmbedder):
    car, automobile, ocean, *others = embedder.embed(["a car", "an automobile", "the ocean", "", " \n", "\u200b", "車"])
    assert {len(each) for each in (car, *others)} == {256}
    assert all(map(isfinite, chain(*others)))

    def nearness(one: list[float], other: list[float]) -> float:
        return fsum(a * b for a, b in zip(one, other, strict=True))

    assert nearness(car, car) == pytest.approx(1)
    assert nearness(car, automobile) > 0.4 > 0.2 > nearness(car, ocean)


@pytest.mark.skipif(
    not hasattr(sqlite3.Connection, "enable_load_extension"), reason="this Python's SQLite loads no extensions"
)
def test_recall_finds_a_synonym(bus: Bus, embedder: WordLlamaEmbedder):
    notes = bus.notes("s1")
    for text in ("The automobile is in the garage", "Lunch is at noon", "The ocean is deep"):
        notes.add(text)
    assert bus.recall("where is my car", sessions=["s1"]) == []
    assert (
        bus.recall("where is my car", sessions=["s1"], embedder=embedder)[0].text == "The automobile is in the garage"
    )


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "wordllama", None)
    with pytest.raises(ScratchbusError, match="needs the extra `meaning`"):
        WordLlamaEmbedder()
