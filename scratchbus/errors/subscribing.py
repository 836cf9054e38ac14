"""Errors of subscriptions and their consumers."""

from __future__ import annotations

from scratchbus.errors.state import Conflict


class SubscriptionMismatch(Conflict):
    """The subscription is in use with other filters."""

    def __init__(self, name: str, holder: str, theirs: str, ours: str) -> None:
        super().__init__(
            f"subscription {name!r} is in use by {holder} with the filters {theirs}, not {ours};"
            " use the same filters, or another name"
        )
        self.name = name
        self.holder = holder


class SubscriptionHeld(Conflict):
    """The subscription has a consumer, which prevents this."""

    def __init__(self, name: str, holder: str, verb: str) -> None:
        super().__init__(f"subscription {name!r} is in use by {holder} and cannot {verb}; stop that consumer first")
        self.name = name
        self.holder = holder


class LeaseLost(Conflict):
    """The consumer lost its lease; another may have taken over, and unacked events are delivered again."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"subscription {name!r}: this consumer's lease has ended, and the events it did not ack are delivered to"
            " the current holder; continue with the next delivery"
        )
        self.name = name


class NotDelivered(Conflict):
    """The event that was acked or failed is not out for delivery."""

    def __init__(self, name: str, position: object) -> None:
        super().__init__(
            f"subscription {name!r}: the event at {position} is not, or no longer, delivered to this consumer: it was"
            " acked, or it failed. Ack each delivery once, after handling it"
        )
        self.name = name


class TooManyUnacked(Conflict):
    """The consumer takes deliveries without acking any."""

    def __init__(self, name: str, count: int) -> None:
        super().__init__(f"subscription {name!r}: {count:,} deliveries are not acked; ack each after handling it")
        self.name = name
