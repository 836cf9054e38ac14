"""Durable subscriptions: named cursors in the log, each with one active consumer, and what their handlers refused."""

from scratchbus.subscriptions.blocking import Delivery, Subscription
from scratchbus.subscriptions.letters import DeadLetter
from scratchbus.subscriptions.nonblocking import AsyncDelivery, AsyncSubscription
from scratchbus.subscriptions.status import SubscriptionStatus, read_subscriptions
from scratchbus.subscriptions.terms import Terms

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
