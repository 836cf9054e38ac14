"""A page that is read through a live view or as a page of the past, so that one suite tests all three ways."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, cast

import pytest

from scratchbus import Bus, Page, PastPage, View
from scratchbus.domain.events import Event
from scratchbus.domain.values import moment
from scratchbus.projections.page_in_memory import PageInMemory
from scratchbus.readmodel.page_query import query_page
from scratchbus.views.reads import Observations


def count_folds(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """Return a list to which every event folded into a live page is appended."""
    folded: list[Event] = []
    evolve = PageInMemory.evolve

    def counted(page: PageInMemory, event: Event) -> Any:
        folded.append(event)
        return evolve(page, event)

    monkeypatch.setattr(PageInMemory, "evolve", counted)
    return folded


class _Seen:
    """A page whose writes go to the engine, and whose reads come from elsewhere."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._bus = cast(Bus, page._bus)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._page, name)

    @property
    def _reads(self) -> View | PastPage:
        raise NotImplementedError

    def get(self, id: str) -> Any:
        return self._reads.get(id)

    def list(self, **filters: Any) -> Observations:
        return self._reads.list(**filters)

    def count(self, *filters: Any, **more: Any) -> int:
        return self._reads.count(*filters, **more)

    def active(self, limit: int | None = None) -> Observations:
        return self._reads.active(limit)


class SeenLive(_Seen):
    """A page whose reads come from a live view."""

    def __init__(self, page: Page, views: ExitStack) -> None:
        super().__init__(page)
        self._view = views.enter_context(self._bus.view(page.name))

    @property
    def _reads(self) -> View:
        """The view, up to date with the log and with the engine's clock."""
        self._view.wait_for(self._bus.position())
        self._bus.converse(self._view._open().keep())
        return self._view


class SeenBack(_Seen):
    """A page whose reads come from the page as of now."""

    def history(self, id: str) -> Any:
        return self._reads.history(id)

    @property
    def _reads(self) -> PastPage:
        """The page as of now, by the engine's clock."""
        core = self._bus.core
        now = self._bus.converse(query_page(core.log, self._page.name, core.fresh, "get")).now
        return self._page.as_of(moment(now))
