"""Durable subscriptions: named cursors in the log, each with one active consumer, and their dead letters."""

from scratchbus.subscriptions.dead_letters import DeadLetter
from scratchbus.subscriptions.options import Terms
from scratchbus.subscriptions.subscription import Delivery, Subscription
from scratchbus.subscriptions.subscription_async import AsyncDelivery, AsyncSubscription

__all__ = [
    "AsyncDelivery",
    "AsyncSubscription",
    "DeadLetter",
    "Delivery",
    "Subscription",
    "Terms",
]
