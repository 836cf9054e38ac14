"""Durable subscriptions: named cursors in the log, each with one active consumer, and their dead letters."""

from scratchbus.subscriptions.dead_letters import DeadLetter
from scratchbus.subscriptions.options import Terms
from scratchbus.subscriptions.subscription import Delivery, Subscription
from scratchbus.subscriptions.subscription_async import AsyncDelivery, AsyncSubscription
from scratchbus.subscriptions.subscription_status import SubscriptionStatus, read_subscriptions

__all__ = [
    "AsyncDelivery",
    "AsyncSubscription",
    "DeadLetter",
    "Delivery",
    "Subscription",
    "SubscriptionStatus",
    "Terms",
    "read_subscriptions",
]
