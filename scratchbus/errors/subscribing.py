"""What is raised when the state of a subscription forbids what was asked."""

from __future__ import annotations

from scratchbus.errors.state import Conflict


class SubscriptionMismatch(Conflict):
    """Someone consumes the subscription, with other filters."""

    def __init__(self, name: str, holder: str, theirs: str, ours: str) -> None:
        super().__init__(
            f"subscription {name!r} is in use by {holder} with the filters {theirs}, not {ours};"
            " use the same ones, or another name"
        )
        self.name = name
        self.holder = holder


class SubscriptionHeld(Conflict):
    """Someone consumes the subscription, so that this cannot be done to it."""

    def __init__(self, name: str, holder: str, verb: str) -> None:
        super().__init__(f"subscription {name!r} is in use by {holder} and cannot {verb}; end that consumer first")
        self.name = name
        self.holder = holder


class LeaseLost(Conflict):
    """The lease of a subscription ended, and another consumer may have taken over; what was unacked comes again."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"subscription {name!r}: this consumer's lease is over, and what it did not ack is delivered to whoever"
            " holds it now; go on with the next delivery"
        )
        self.name = name


class NotDelivered(Conflict):
    """An event was acked, or failed, that is not handed out."""

    def __init__(self, name: str, position: object) -> None:
        super().__init__(
            f"subscription {name!r}: the event at {position} is not handed out here, or no longer: it was acked, or it"
            " failed; ack each delivery once, after handling it"
        )
        self.name = name


class TooManyUnacked(Conflict):
    """A consumer goes on taking deliveries without acking any."""

    def __init__(self, name: str, count: int) -> None:
        super().__init__(f"subscription {name!r}: {count:,} deliveries are not acked; ack each after handling it")
        self.name = name
