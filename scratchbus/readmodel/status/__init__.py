"""The status of a bus: its engine, logs, projection, subscriptions and pages."""

from scratchbus.readmodel.status.bus_status import ShardStatus, Status, read_status
from scratchbus.readmodel.status.page_status import PageStatus, read_pages
from scratchbus.readmodel.status.subscription_status import SubscriptionStatus, read_subscriptions

__all__ = [
    "PageStatus",
    "ShardStatus",
    "Status",
    "SubscriptionStatus",
    "read_pages",
    "read_status",
    "read_subscriptions",
]
