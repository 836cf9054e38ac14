"""The numbers of a demo."""

from __future__ import annotations

import time
from dataclasses import dataclass

from scratchbus import Bus, Observation, Page

from .router import SUGGESTION

_ALERT = "risk_alert"


@dataclass(frozen=True)
class Outcome:
    """The numbers of a demo."""

    addresses: int
    attempts: int
    by_address: dict[str, int]
    suggested: int
    acted_on: int
    blocklist: list[str]
    resolved: int
    still_open: int
    expired: int
    events: int
    seconds: float


def outcome_of(bus: Bus, page: Page, blocklist: list[str], started: float) -> Outcome:
    """Return the numbers of a page, on which all is done, and of the log."""
    alerts = alerts_of(page)
    by_address: dict[str, int] = {}
    for alert in sorted(alerts, key=lambda alert: -alert.occurrences):
        address = str(alert.context.get("address", alert.content))
        by_address[address] = by_address.get(address, 0) + alert.occurrences
    return Outcome(
        addresses=len(alerts),
        attempts=sum(by_address.values()),
        by_address=by_address,
        suggested=len(page.list(type=SUGGESTION, limit=None)),
        acted_on=sum(bool(alert.links) for alert in alerts),
        blocklist=blocklist,
        resolved=sum(alert.status == "resolved" for alert in alerts),
        still_open=sum(alert.is_open for alert in alerts),
        expired=sum(each.reason_code == "expired" for each in page.list(status="archived", limit=None)),
        events=sum(position.seq for position in bus.position().shards),
        seconds=round(time.monotonic() - started, 1),
    )


def alerts_of(page: Page) -> list[Observation]:
    """Return the alerts on a page, of whatever status."""
    return page.list(type=_ALERT, limit=None)
