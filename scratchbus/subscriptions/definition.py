"""The definition of a subscription: its filters, its rules for retries, and its webhook."""

from __future__ import annotations

import base64
from contextlib import suppress
from secrets import token_bytes, token_hex
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from scratchbus.domain.checks import check_flag
from scratchbus.domain.values import delay_ms
from scratchbus.engine.steps import Step
from scratchbus.errors import InvalidField, NotFound, SubscriptionHeld, shown
from scratchbus.eventlog.subscription_errors import dropped
from scratchbus.eventlog.subscription_script import run_script, subscription_script
from scratchbus.eventlog.subscription_state import read_state
from scratchbus.readmodel.scope import Core
from scratchbus.subscriptions.event_filters import Filters
from scratchbus.subscriptions.options import Terms, check_attempts, check_name, start_position

WEBHOOK_ATTEMPTS: Final = 500
"""The attempts per event of a webhook by default: about 8 hours, since its receiver may be away for that long."""

_PREFIX = "whsec_"
_MIN_KEY, _MAX_KEY = 24, 64  # bytes, from Standard Webhooks
_MAX_URL = 2_048


class Webhook(NamedTuple):
    """The URL that a subscription delivers its events to, and the secret that signs them; do not show it."""

    subscription: str
    url: str
    secret: str

    @property
    def key(self) -> bytes:
        """The key of the signatures."""
        return _key_of(self.secret)

    def __repr__(self) -> str:
        return f"Webhook({self.subscription!r}, {self.url!r})"


def new_webhook_secret() -> str:
    """Return a new random secret for a webhook in the form of Standard Webhooks: `whsec_` and base64."""
    return _PREFIX + base64.b64encode(token_bytes(32)).decode()


def attempts_of(max_attempts: int | None, url: str | None) -> int:
    """Return the attempts per event of a subscription that is declared, by default more with a webhook."""
    if max_attempts is not None:
        return max_attempts
    return Terms().max_attempts if url is None else WEBHOOK_ATTEMPTS


def declare(
    core: Core,
    name: str,
    filters: Filters,
    terms: Terms,
    url: str | None,
    secret: str | None,
    default_secret: str | None,
) -> Step[bool]:
    """Store the definition of a subscription; return whether the name is new.

    Without a secret the stored one is kept; if there is none, the default secret is stored. Raises InvalidInput, also
    for a webhook without any secret, SubscriptionHeld for other filters or a reset while it is consumed, or
    PositionLost if it was dropped.
    """
    attempts, wait_ms = check_attempts(terms.max_attempts), delay_ms(terms.retry_delay, "retry_delay")
    checked_url = _check_url(url) if url is not None else ""
    given = {"secret": secret, "default_secret": default_secret}
    secrets = {field: _check_secret(field, each) for field, each in given.items() if each is not None}
    if secrets and not checked_url:
        raise InvalidField(next(iter(secrets)), "signs the deliveries of a webhook; pass its url too")
    check_flag("reset", terms.reset)
    start = yield from start_position(core, name, filters, terms)
    reply = yield from run_script(
        core.log.keys(0), check_name(name), "define", token=token_hex(8), filters=str(filters), start=start,
        reset=int(terms.reset), attempts=attempts, wait_ms=wait_ms, url=checked_url, **secrets,
    )  # fmt: skip
    reply = subscription_script.answer(reply, 1, 0, -1, -3, -4)
    if reply[0] == -4:
        raise InvalidField("secret", "a webhook needs one to sign its deliveries; pass `new_webhook_secret()`")
    if reply[0] == -3:
        raise dropped(name, *reply[1:])
    if reply[0] != 1:
        raise SubscriptionHeld(name, reply[1].decode(), "be reset" if terms.reset else "get other filters")
    return bool(reply[1])


def read_webhook(core: Core, name: str) -> Step[Webhook]:
    """Return the webhook of a subscription. Raises NotFound if it has none."""
    state = yield from read_state(core.log.keys(0), check_name(name))
    if not state.get("url"):
        raise NotFound(f"subscription {name!r} has no webhook; declare it with a url")
    return Webhook(name, state["url"], state.get("secret", ""))


def _check_url(url: object) -> str:
    try:
        parts = urlsplit(url) if isinstance(url, str) and url.isascii() and url.isprintable() else None
        is_valid = parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        parts, is_valid = None, False
    if parts is None or not is_valid or " " in parts.geturl() or len(parts.geturl()) > _MAX_URL:
        raise InvalidField("url", f"{shown(url)} is not a URL; write http(s)://host/path in at most 2,048 characters")
    if "@" in parts.netloc or parts.fragment:
        raise InvalidField("url", f"{shown(parts.hostname)}: leave out the user, the password and the fragment")
    return parts.geturl()


def _check_secret(field: str, secret: object) -> str:
    if isinstance(secret, str) and secret.startswith(_PREFIX):
        with suppress(ValueError):
            if _MIN_KEY <= len(_key_of(secret)) <= _MAX_KEY:
                return secret
    raise InvalidField(
        field, "is not a secret of a webhook; write whsec_ and 24 to 64 random bytes in base64, as"
        " `new_webhook_secret()` does"
    )  # fmt: skip


def _key_of(secret: str) -> bytes:
    return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
