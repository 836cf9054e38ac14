"""The message for an engine that cannot be reached: the likely cause, and what to do."""

from __future__ import annotations

import re

_UNTRUSTED = re.compile(r"certificate verify failed: (.*?)\.? \(_ssl")
_HUNG_UP = ("reset by peer", "closed by server", "EOF occurred", "certificate required")

_HINTS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("redis://", _HUNG_UP, "; it may require TLS: rediss://"),
    ("rediss://", _HUNG_UP, "; it may require a client certificate: ssl_certfile= and ssl_keyfile="),
    ("rediss://", ("Timeout connecting", "no reply within"), "; it may not use TLS on this port: redis://"),
)
"""Hints: the scheme of the URL, words in the client's message, and what to add to ours."""


def explain(where: str, text: str) -> str:
    """Return a line that says that the engine at `where` cannot be reached; `text` is the client's message."""
    if untrusted := _UNTRUSTED.search(text):
        return (
            f"{where} is not trusted ({untrusted[1]}); fix its certificate, or name the CA that signed it:"
            " ssl_ca_certs=FILE in the URL"
        )
    hints = (hint for scheme, words, hint in _HINTS if f" {scheme}" in where and any(word in text for word in words))
    return f"{where} does not answer ({text}); start it, or check SCRATCHBUS_URL or --url{next(hints, '')}"
