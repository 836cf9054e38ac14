"""The examples in the documentation of events over HTTP."""

import os
import subprocess
import time
from typing import Any

import pytest

from scratchbus import Webhook, new_webhook_secret
from scratchbus.http.webhooks import signature
from tests.docs.markdown import ROOT, blocks
from tests.edges.http.event_servers import open_bus

DOCUMENT = ROOT / "docs/http-events.md"


@pytest.mark.slow
def test_the_documented_commands_succeed(embedded_url):
    commands = [line for block in blocks(DOCUMENT.read_text("utf-8"), "console") for line in block.text.splitlines()]
    assert len(commands) >= 8
    with open_bus(embedded_url) as buses, buses.serve() as server:
        buses.bus.page().add("risk_alert", "x")
        for command in commands:
            done = subprocess.run(
                ["/bin/sh", "-c", command.removeprefix("$ ")],
                env={**os.environ, "API": server.api},
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            )
            assert done.returncode == 0, (command, done.stdout, done.stderr)


def test_the_documented_receiver_refuses_repeats_and_forgeries():
    (snippet,) = blocks(DOCUMENT.read_text("utf-8"), "python")
    names: dict[str, Any] = {}
    exec(compile(snippet.text, str(DOCUMENT), "exec"), names)  # noqa: S102
    is_new = names["is_new"]
    webhook = Webhook("s", "https://example.com", new_webhook_secret())
    now = int(time.time())

    def headers(id, timestamp, content):
        unsigned = {"webhook-id": id, "webhook-timestamp": str(timestamp)}
        return unsigned | {"webhook-signature": signature(webhook, id, timestamp, content)}

    good = headers("e1", now, b"{}")
    assert is_new(webhook.secret, good, b"{}")
    assert not is_new(webhook.secret, good, b"{}")
    assert is_new(webhook.secret, headers("e2", now, b"{}"), b"{}")
    for forged, content in [
        (good, b"[]"),
        (good | {"webhook-id": "e3"}, b"{}"),
        (good | {"webhook-timestamp": str(now + 1)}, b"{}"),
        (headers("e4", now - 400, b"{}"), b"{}"),
    ]:
        with pytest.raises(ValueError, match=r"too old|not signed"):
            is_new(webhook.secret, forged, content)
