"""Recall: its time over 100,000 short items, and the quality of its answers."""

from __future__ import annotations

import random
import sqlite3
from itertools import accumulate, count
from statistics import mean

from scratchbus import Bus, NewObservation
from tests.benchmarks.measure import Side, interleave
from tests.benchmarks.recall_questions import QUESTIONS, Corpus, Question
from tests.benchmarks.rows import Floor, Row, times
from tests.benchmarks.stage import BATCH, Sizes, Stage, catch_up

_AIM = 0.020
_WORDS = 20_000
_LENGTH = 12  # words of an item
_FIRST = 5
_PER_NOTE = 20  # items for each note


def measure_recall(stage: Stage, sizes: Sizes) -> list[Row]:
    """Compare recall, also after a write, with a substring search; then score answers to questions."""
    return [*_speed(stage, sizes), *_quality(stage)]


def _speed(stage: Stage, sizes: Sizes) -> list[Row]:
    bus, chance = stage.bus("recall"), random.Random(7)
    texts = _fill(bus, sizes.large_page, chance)
    catch_up(bus)
    questions = [_question(texts, chance) for _ in range(20)]
    reads, numbers, notes = len(questions), count(), bus.notes("s1")
    folded = [text.casefold() for text in texts]

    def ask(question: str) -> None:
        assert bus.recall(question, sessions=["s1"], page="main")

    def recall() -> None:
        for question in questions:
            ask(question)

    def write_and_recall() -> None:
        for _ in range(reads):
            text = f"finding number{next(numbers)}"
            notes.add(text)
            assert bus.recall(text, sessions=["s1"], page="main", limit=1)[0].text == text

    def substring() -> None:
        for question in questions[:2]:
            words = question.split()
            found = [sum(word in text for word in words) for text in folded]
            assert max(found)

    what = f"recall(), {sizes.large_page:,} items"
    taken = interleave(
        sizes.rounds,
        Side(what, reads, recall),
        Side(f"add_note + {what}", reads, write_and_recall),
        Side("substring search of all texts in memory", 2, substring),
    )
    ours, written, theirs = taken
    floor = Floor("ours", "at most", _AIM)
    return [times(taken, ours, theirs, floor=floor), times(taken, written, theirs)]


def _fill(bus: Bus, size: int, chance: random.Random) -> list[str]:
    """Add short items, one in twenty of them a note, with words by Zipf's law; return their texts."""
    words = [f"{''.join(chance.choices('bcdfglmnprst', k=3))}{number}" for number in range(_WORDS)]
    weights = list(accumulate(1 / rank for rank in range(1, _WORDS + 1)))
    texts = [" ".join(chance.choices(words, cum_weights=weights, k=_LENGTH)) for _ in range(size)]
    notes, rest = texts[::_PER_NOTE], [text for at, text in enumerate(texts) if at % _PER_NOTE]
    for at in range(0, len(rest), BATCH):
        bus.page().add_many([NewObservation(type="observation", content=text) for text in rest[at : at + BATCH]])
    for text in notes:
        bus.notes("s1").add(text)
    return texts


def _question(texts: list[str], chance: random.Random) -> str:
    """Return some words of an item."""
    return " ".join(chance.sample(chance.choice(texts).split(), 5))


def _quality(stage: Stage) -> list[Row]:
    """Answer all questions with `recall`, with FTS5 alone and with a substring search."""
    corpus = Corpus(stage.bus("recall-quality"))
    engines = {"recall": _recalled(corpus), "FTS5 alone": _by_fts5(corpus), "substring": _by_substring(corpus)}
    kinds = dict.fromkeys(question.kind for question in QUESTIONS)
    rows = []
    for what, score in (("recall@5", _recall_at_5), ("MRR", _reciprocal_rank)):
        scores = {name: [score(found, each) for found, each in _paired(engines[name])] for name in engines}
        by_kind = "; ".join(
            f"{kind} {' / '.join(f'{_mean_of(scores[name], kind):.2f}' for name in engines)}" for kind in kinds
        )
        for other in ("FTS5 alone", "substring"):
            floor = Floor("ratio", "at least", 1.0)
            figures = mean(scores["recall"]), mean(scores[other])
            note = f"{' / '.join(engines)}: {by_kind}" if other == "FTS5 alone" else ""
            rows.append(Row.of_scores(f"{what} of {len(QUESTIONS)} questions", other, *figures, floor, note))
    return rows


def _paired(found: list[list[str]]) -> list[tuple[list[str], Question]]:
    return list(zip(found, QUESTIONS, strict=True))


def _mean_of(scores: list[float], kind: str) -> float:
    return mean(score for score, question in zip(scores, QUESTIONS, strict=True) if question.kind == kind)


def _recall_at_5(found: list[str], question: Question) -> float:
    """Return the share of the relevant items that are among the first five."""
    return len(question.relevant & set(found[:_FIRST])) / len(question.relevant)


def _reciprocal_rank(found: list[str], question: Question) -> float:
    """Return 1 / the rank of the first relevant item among the first ten; 0 if there is none."""
    return next((1 / rank for rank, name in enumerate(found[:10], 1) if name in question.relevant), 0.0)


def _recalled(corpus: Corpus) -> list[list[str]]:
    return [corpus.recall(question) for question in QUESTIONS]


def _by_fts5(corpus: Corpus) -> list[list[str]]:
    """Return the answers of FTS5's BM25 alone, with the stemmer of `recall`, on the current texts."""
    database = sqlite3.connect(":memory:")
    database.execute("CREATE VIRTUAL TABLE items USING fts5(name UNINDEXED, text, tokenize = 'porter unicode61')")
    database.executemany("INSERT INTO items VALUES (?, ?)", corpus.texts.items())
    find = "SELECT name FROM items WHERE items MATCH ? ORDER BY rank LIMIT 10"
    asked = [" OR ".join(f'"{word}"' for word in _words(question)) for question in QUESTIONS]
    return [[name for (name,) in database.execute(find, (query,))] for query in asked]


def _by_substring(corpus: Corpus) -> list[list[str]]:
    """Return the items with most words of a question, newer ones first among equals."""
    found = []
    for question in QUESTIONS:
        words = _words(question)
        hits = {name: sum(word in text.casefold() for word in words) for name, text in corpus.texts.items()}
        newest_first = [*hits][::-1]
        order = sorted(newest_first, key=lambda name: -hits[name])
        found.append([name for name in order if hits[name]][:10])
    return found


def _words(question: Question) -> list[str]:
    return [word for each in question.text.casefold().split() if (word := each.strip("?.,'’\"()"))]
