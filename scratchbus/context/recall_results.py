"""The results of recall, and the reasons for them."""

from __future__ import annotations

from typing import Any, NamedTuple

from scratchbus.domain.document import Remembered
from scratchbus.domain.documents import document_of
from scratchbus.domain.observation import Observation


class Reason(NamedTuple):
    """Why an item was recalled: the list it is in, its rank there (from 1), and what matched, if anything specific.

    The lists are `words` (the matching words), `meaning`, `neighbours` (the entity), `freshness` and `priority`.
    """

    list: str
    rank: int
    by: str = ""

    def __str__(self) -> str:
        return f"{self.list} {self.rank}" + (f" ({self.by})" if self.by else "")


class Recalled(NamedTuple):
    """An item relevant to a question: where it is, the relevant part of its text, and why it was found.

    `kind` is `observation`, `note`, `notepad`, `fact` or `preference`, `id` its subject on the page, `item` the
    document.
    """

    kind: str
    page: str
    id: str
    text: str
    score: float
    reasons: tuple[Reason, ...]
    item: Observation | Remembered


@document_of.register
def _(found: Recalled) -> dict[str, Any]:
    source = {"kind": found.kind, "page": found.page, "id": found.id}
    reasons = [reason._asdict() for reason in found.reasons]
    return {**source, "text": found.text, "score": round(found.score, 6), "reasons": reasons}
