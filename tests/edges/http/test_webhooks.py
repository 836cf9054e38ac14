"""Webhooks: signatures, order, retries, dead letters, and no delivery to local addresses unless allowed."""

import asyncio
import base64
import hmac
import json
import threading
import time
from contextlib import ExitStack, asynccontextmanager, contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from secrets import token_hex
from typing import Any, cast

import anyio
import httpcore2
import pytest
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from scratchbus import AsyncBus, Bus, Webhook, because, new_webhook_secret
from scratchbus.engine.steps import ask
from scratchbus.errors import EngineUnreachable
from scratchbus.http import webhooks
from scratchbus.http.server import Server
from scratchbus.http.webhooks import AddressRefused, CheckedNetwork, Webhooks, is_public, signature
from scratchbus.subscriptions.options import retry_seconds
from tests.edges.http.conftest import serving_here
from tests.edges.http.event_servers import open_bus
from tests.waiting import PATIENCE, eventually

SECRET = new_webhook_secret()
TRACE = f"00-{7:032x}-{9:016x}-01"


class Receiver:
    """A receiver as documented: it checks the signature and the time, and refuses repeats."""

    TOLERANCE = 300

    def __init__(self, secret: str = SECRET) -> None:
        self.key = base64.b64decode(secret.removeprefix("whsec_"))
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.events: list[dict[str, Any]] = []
        self.statuses: list[int] = []  # of the next answers, before 204
        self.seen: set[str] = set()
        self.location = ""

    def take(self, headers: dict[str, str], content: bytes) -> int:
        """Return the status of the answer to a request."""
        self.requests.append((headers, content))
        if self.statuses:
            return self.statuses.pop(0)
        id, timestamp = headers["webhook-id"], headers["webhook-timestamp"]
        if abs(time.time() - int(timestamp)) > self.TOLERANCE:
            return 400
        signed = f"{id}.{timestamp}.".encode() + content
        expected = "v1," + base64.b64encode(hmac.digest(self.key, signed, sha256)).decode()
        if not hmac.compare_digest(expected, headers["webhook-signature"]):
            return 401
        if id in self.seen:
            return 409
        self.seen.add(id)
        self.events.append(json.loads(content))
        return 204


@contextmanager
def receiving(receiver):
    """Run a receiver on a free port; yield its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            content = self.rfile.read(int(self.headers["content-length"]))
            status = receiver.take({name.lower(): value for name, value in self.headers.items()}, content)
            self.send_response(status)
            if receiver.location:
                self.send_header("Location", receiver.location)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self):
            receiver.requests.append(({}, b"GET"))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/in"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def _short_interval(monkeypatch):
    monkeypatch.setattr(webhooks, "LOOK", 0.05)


@pytest.fixture
def bus(embedded_url):
    with Bus.connect(embedded_url, bus=f"test-{token_hex(6)}", shards=1, source="tester") as bus:
        yield bus


@asynccontextmanager
async def delivering(bus, url, allow_private=True):
    """Deliver webhooks in this process, as a server does."""
    settings = {"url": url, "bus": bus.settings.bus}
    server = Server(cast(Any, None), settings, allow_private_webhooks=allow_private)
    async with server.running(), Webhooks(server).running():
        yield


async def until(condition, what="the condition holds"):
    await anyio.to_thread.run_sync(eventually, condition, what)


# -- deliveries -------------------------------------------------------------------------------------------------------


async def test_events_are_delivered_signed_and_in_order(bus, embedded_url):
    receiver = Receiver()
    with receiving(receiver) as url:
        bus.declare_subscription("hook", types=["risk_alert"], url=url, secret=SECRET)
        async with delivering(bus, embedded_url):
            bus.page().add("observation", "not this")
            with because(traceparent=TRACE):
                added = [bus.page().add("risk_alert", "0")]
            added += [bus.page().add("risk_alert", f"{n}") for n in (1, 2)]
            await until(lambda: len(receiver.events) == 3)
            await until(lambda: bus.subscriptions()[0].lag == 0)
    events = [JSONFormat().read(CloudEvent, content) for _, content in receiver.requests]
    assert [event.get_subject() for event in events] == [each.id for each in added]
    headers, _ = receiver.requests[0]
    assert headers["content-type"] == "application/cloudevents+json"
    assert headers["webhook-id"] == events[0].get_id()
    assert [headers.get("traceparent") for headers, _ in receiver.requests] == [TRACE, None, None]


async def test_a_failed_delivery_is_retried_before_later_events(bus, embedded_url):
    receiver = Receiver()
    receiver.statuses = [500, 503]
    with receiving(receiver) as url:
        bus.declare_subscription("hook", url=url, secret=SECRET, retry_delay="50ms")
        async with delivering(bus, embedded_url):
            for n in range(2):
                bus.page().add("risk_alert", f"{n}")
            await until(lambda: len(receiver.events) == 2)
    ids = [headers["webhook-id"] for headers, _ in receiver.requests]
    assert len(ids) == 4
    assert len(set(ids[:3])) == 1
    assert [event["data"]["content"] for event in receiver.events] == ["0", "1"]


async def test_an_outage_of_hours_makes_no_dead_letter(bus, embedded_url):
    receiver = Receiver()
    receiver.statuses = [503] * 20
    with receiving(receiver) as url:
        bus.declare_subscription("hook", url=url, secret=SECRET, retry_delay=0)
        async with delivering(bus, embedded_url):
            bus.page().add("observation", "x")
            await until(lambda: receiver.events)
    assert bus.dead_letters("hook") == []
    attempts = bus.subscriptions()[0].max_attempts
    assert attempts is not None
    assert 8 * 3_600 < sum(retry_seconds(1, attempt) for attempt in range(1, attempts)) < 9 * 3_600


@pytest.mark.parametrize("status", [400, 413, 415, 422])
async def test_an_event_that_its_receiver_refuses_holds_up_the_later_ones_for_five_refusals(bus, embedded_url, status):
    receiver = Receiver()
    receiver.statuses = [503, *[status] * 5]
    with receiving(receiver) as url:
        bus.declare_subscription("hook", url=url, secret=SECRET, retry_delay=0)
        async with delivering(bus, embedded_url):
            for number in range(2):
                bus.page().add("observation", str(number))
            await until(lambda: receiver.events)
    assert [event["data"]["content"] for event in receiver.events] == ["1"]
    (letter,) = bus.dead_letters("hook")
    assert (letter.attempts, letter.reason) == (6, f"it answered {status}")


@pytest.mark.parametrize("statuses", [[503] * 10 + [400] * 4, [400] * 4 + [503] + [400] * 4])
async def test_attempts_during_an_outage_are_no_refusals(bus, embedded_url, statuses):
    receiver = Receiver()
    receiver.statuses = statuses.copy()
    with receiving(receiver) as url:
        bus.declare_subscription("hook", url=url, secret=SECRET, retry_delay=0)
        async with delivering(bus, embedded_url):
            bus.page().add("observation", "x")
            await until(lambda: receiver.events or bus.dead_letters("hook"))
    assert (len(receiver.events), bus.dead_letters("hook")) == (1, [])
    assert len(receiver.requests) == len(statuses) + 1


async def test_the_refusals_of_a_dead_letter_that_is_retried_are_counted_again(bus, embedded_url):
    receiver = Receiver()
    receiver.statuses = [422] * 5
    with receiving(receiver) as url:
        bus.declare_subscription("hook", url=url, secret=SECRET, retry_delay=0)
        async with delivering(bus, embedded_url):
            bus.page().add("observation", "x")
            await until(lambda: bus.dead_letters("hook"))
            receiver.statuses = [422] * 4
            bus.retry_dead_letters("hook")
            await until(lambda: receiver.events)
            await until(lambda: not bus.dead_letters("hook"))
    assert len(receiver.requests) == 10


def test_only_a_webhook_has_more_attempts_by_default(bus):
    bus.declare_subscription("pulled")
    bus.declare_subscription("set", url="http://127.0.0.1:9/", secret=SECRET, max_attempts=3)
    assert {each.name: each.max_attempts for each in bus.subscriptions()} == {"pulled": 5, "set": 3}


async def test_a_receiver_that_is_away_does_not_delay_another_webhook(bus, embedded_url):
    receiver = Receiver()
    with receiving(receiver) as url:
        bus.declare_subscription("away", url="http://127.0.0.1:9/", secret=SECRET, retry_delay="1h")
        bus.page().add("observation", "x")
        async with delivering(bus, embedded_url):
            await until(lambda: bus.subscriptions()[0].trying)
            bus.declare_subscription("hook", url=url, secret=SECRET)
            await until(lambda: receiver.events)


async def test_an_event_whose_id_is_not_ascii_is_delivered_signed(bus, embedded_url):
    receiver = Receiver()
    bus.page().add("observation", "x")
    (event,) = bus.events()
    with receiving(receiver) as url:
        sender = Webhooks(Server(cast(Any, None), {"url": embedded_url}, allow_private_webhooks=True))
        for id in ("größe 1", "a\n b%-9"):
            failure = await sender._send(Webhook("hook", url, SECRET), event.placed(id=id), "b")
            assert failure is None
    assert [headers["webhook-id"] for headers, _ in receiver.requests] == ["gr%C3%B6%C3%9Fe%201", "a%0A%20b%-9"]
    assert [each["id"] for each in receiver.events] == ["größe 1", "a\n b%-9"]


async def test_a_dead_letter_says_that_a_delivery_could_not_be_signed(bus, embedded_url):
    bus.declare_subscription("hook", url="http://127.0.0.1:9/in", secret=SECRET, max_attempts=1)
    bus.converse(ask(0, "HSET", bus.core.log.keys(0).subscription("hook"), "secret", "whsec_x"))
    async with delivering(bus, embedded_url):
        bus.page().add("observation", "x")
        await until(lambda: bus.dead_letters("hook"))
    assert "its signature not made" in bus.dead_letters("hook")[0].reason


@pytest.mark.slow
async def test_a_delivery_that_keeps_failing_becomes_a_dead_letter(bus, embedded_url):
    receiver = Receiver()
    receiver.statuses = [500, 404]
    with receiving(receiver) as url:
        bus.declare_subscription("hook", url=url, secret=SECRET, retry_delay=0, max_attempts=2)
        async with delivering(bus, embedded_url):
            for n in range(2):
                bus.page().add("risk_alert", f"{n}")
            await until(lambda: bus.dead_letters("hook") and len(receiver.events) == 1)
            (dead_letter,) = bus.dead_letters("hook")
            assert (dead_letter.reason, dead_letter.attempts) == ("it answered 404", 2)
            bus.retry_dead_letters("hook")
            await until(lambda: len(receiver.events) == 2)
    assert [event["data"]["content"] for event in receiver.events] == ["1", "0"]


async def test_a_redirect_is_a_failure_and_not_followed(bus, embedded_url):
    receiver = Receiver()
    with receiving(receiver) as url:
        receiver.statuses, receiver.location = [307, 302], url.replace("/in", "/elsewhere")
        bus.declare_subscription("hook", url=url, secret=SECRET, retry_delay=0, max_attempts=2)
        async with delivering(bus, embedded_url):
            bus.page().add("risk_alert", "x")
            await until(lambda: bus.dead_letters("hook"))
    assert [content != b"GET" for _, content in receiver.requests] == [True, True]
    assert bus.dead_letters("hook")[0].reason == "it answered 302"


async def test_a_receiver_that_does_not_answer_in_time_is_a_failure(bus, embedded_url, monkeypatch):
    monkeypatch.setattr(webhooks, "TIMEOUT", 0.2)
    released = threading.Event()

    class Slow(Receiver):
        def take(self, headers, content):
            released.wait(20)
            return 204

    with receiving(Slow()) as url:
        bus.declare_subscription("hook", url=url, secret=SECRET, retry_delay=0, max_attempts=1)
        async with delivering(bus, embedded_url):
            bus.page().add("risk_alert", "x")
            await until(lambda: bus.dead_letters("hook"))
        released.set()
    assert "did not answer" in bus.dead_letters("hook")[0].reason


async def test_a_server_that_stops_gives_back_what_it_delivers(bus, embedded_url):
    has_begun, may_end = threading.Event(), threading.Event()

    class Slow(Receiver):
        def take(self, headers, content):
            has_begun.set()
            may_end.wait(20)
            return 204

    with receiving(Slow()) as url:
        bus.declare_subscription("hook", url=url, secret=SECRET, max_attempts=1)
        async with delivering(bus, embedded_url):
            bus.page().add("risk_alert", "x")
            await until(has_begun.is_set)
        assert [(each.event.content, each.attempt) for each in bus.pull("hook").deliveries] == [("x", 1)]
        may_end.set()


@pytest.mark.parametrize(("status", "step", "attempt"), [(204, "ack", None), (500, "nack", 2), (204, "webhook", 1)])
async def test_a_server_that_stops_settles_a_delivery_at_any_step(
    bus, embedded_url, monkeypatch, status, step, attempt
):
    receiver, is_at_step, method = Receiver(), threading.Event(), getattr(AsyncBus, step)
    receiver.statuses = [status]

    async def hang_once(self: AsyncBus, *arguments: Any, **options: Any) -> Any:
        if not is_at_step.is_set():
            is_at_step.set()
            await asyncio.sleep(3_600)  # until it is cancelled
        return await method(self, *arguments, **options)

    monkeypatch.setattr(AsyncBus, step, hang_once)
    with receiving(receiver) as url:
        bus.declare_subscription("hook", url=url, secret=SECRET, retry_delay=0)
        async with delivering(bus, embedded_url):
            bus.page().add("risk_alert", "x")
            await until(is_at_step.is_set)
        assert [each.attempt for each in bus.pull("hook").deliveries] == ([] if attempt is None else [attempt])
        assert bus.subscriptions()[0].lag == (0 if attempt is None else 1)


async def test_two_processes_deliver_each_event_once(bus, embedded_url):
    receiver = Receiver()
    with receiving(receiver) as url:
        bus.declare_subscription("hook", url=url, secret=SECRET)
        async with delivering(bus, embedded_url), delivering(bus, embedded_url):
            for n in range(10):
                bus.page().add("risk_alert", f"{n}")
            await until(lambda: len(receiver.events) == 10)
    assert [event["data"]["content"] for event in receiver.events] == [f"{n}" for n in range(10)]
    assert len(receiver.requests) == 10


async def test_webhooks_are_found_again_after_any_error(bus, embedded_url, monkeypatch):
    receiver, subscriptions, failures = Receiver(), AsyncBus.subscriptions, iter(range(2))

    async def fail_twice(self: AsyncBus) -> list[Any]:
        if next(failures, None) is not None:
            raise ValueError("a stored subscription cannot be read")
        return await subscriptions(self)

    monkeypatch.setattr(AsyncBus, "subscriptions", fail_twice)
    with receiving(receiver) as url:
        bus.declare_subscription("hook", url=url, secret=SECRET)
        async with delivering(bus, embedded_url):
            bus.page().add("risk_alert", "x")
            await until(lambda: receiver.events)
    assert next(failures, None) is None


async def test_a_removed_webhook_gets_no_more_events(bus, embedded_url):
    receiver, other = Receiver(), Receiver()
    with receiving(receiver) as url, receiving(other) as other_url:
        bus.declare_subscription("hook", types=["risk_alert"], url=url, secret=SECRET)
        async with delivering(bus, embedded_url):
            bus.page().add("risk_alert", "0")
            await until(lambda: len(receiver.events) == 1)
            await until(lambda: bus.subscriptions()[0].holder is None)
            bus.declare_subscription("hook", types=["risk_alert"])
            bus.declare_subscription("other", after=bus.position(), url=other_url, secret=SECRET)
            bus.page().add("observation", "only for the other")
            await until(lambda: len(other.events) == 1, "both changes are noticed")
            bus.page().add("risk_alert", "1")
            await until(lambda: len(other.events) == 2, "the other webhook gets the event")
            assert len(receiver.requests) == 1
            (delivery,) = bus.pull("hook").deliveries
            assert (delivery.event.content, delivery.attempt) == ("1", 1)


async def test_an_event_pulled_for_a_webhook_that_is_removed_is_not_an_attempt(bus, embedded_url, monkeypatch):
    real = AsyncBus.webhook

    async def removing(self, name):
        bus.declare_subscription(name, max_attempts=1)
        return await real(self, name)

    monkeypatch.setattr(AsyncBus, "webhook", removing)
    bus.declare_subscription("hook", max_attempts=1, url="http://127.0.0.1:9/", secret=SECRET)
    async with delivering(bus, embedded_url):
        bus.page().add("risk_alert", "0")
        await until(lambda: bus.subscriptions()[0].url is None, "the webhook is removed")
        pulled = await anyio.to_thread.run_sync(lambda: bus.pull("hook", wait="5s"))
    assert [(each.event.content, each.attempt) for each in pulled.deliveries] == [("0", 1)]


@pytest.mark.slow
def test_another_server_repeats_the_delivery_of_a_killed_one(embedded_url):
    """The first of two server processes dies during a delivery."""
    receiver, arrived, is_dead = Receiver(), threading.Event(), threading.Event()

    class Hanging(Receiver):
        def take(self, headers, content):
            arrived.set()
            is_dead.wait(30)
            return 204

    with open_bus(embedded_url) as buses, receiving(Hanging()) as hanging, receiving(receiver) as url:
        with buses.serve("--allow-private-webhooks") as first:
            made = first.request("PUT", "/subscriptions/hook", {"url": hanging, "secret": SECRET})
            assert made.status_code == 201
            buses.bus.page().add("risk_alert", "x")
            assert arrived.wait(20)
            first.kill()
            is_dead.set()
        buses.bus.declare_subscription("hook", url=url)
        with buses.serve("--allow-private-webhooks"):
            eventually(lambda: receiver.events, within=45)
    assert receiver.events[0]["data"]["content"] == "x"


@pytest.mark.slow
def test_the_secret_is_returned_only_when_it_is_made(embedded_url):
    with open_bus(embedded_url) as buses, buses.serve("--allow-private-webhooks") as server:
        made = server.request("PUT", "/subscriptions/hook", {"url": "http://127.0.0.1:9/"})
        secret = made.json()["secret"]
        assert (made.status_code, secret[:6]) == (201, "whsec_")
        assert buses.bus.webhook("hook").secret == secret
        again = server.request("PUT", "/subscriptions/hook", {"url": "http://127.0.0.1:10/"})
        shown = [again, server.get("/subscriptions"), server.get("/subscriptions/hook"), server.get("/events")]
        assert all(secret not in answer.text for answer in shown)
        assert buses.bus.webhook("hook").secret == secret


def test_of_simultaneous_declarations_on_two_servers_one_makes_the_secret(embedded_url, monkeypatch):
    name, declare_subscription = f"hook-{token_hex(6)}", AsyncBus.declare_subscription
    answers, together = [], threading.Barrier(2)

    async def declare_together(self: AsyncBus, *arguments: Any, **named: Any) -> bool:
        await anyio.to_thread.run_sync(together.wait, PATIENCE)
        return await declare_subscription(self, *arguments, **named)

    def declare(http: Any) -> None:
        answers.append(http.put(f"/subscriptions/{name}", json={"url": "https://example.com/"}, timeout=PATIENCE))

    monkeypatch.setattr(webhooks, "LOOK", 3_600)  # nothing is delivered, so that it can be removed
    with ExitStack() as servers, Bus.connect(embedded_url) as bus:
        clients = []
        for _ in range(2):
            clients.append(servers.enter_context(servers.enter_context(serving_here(embedded_url)).client()))
            clients[-1].put(f"/subscriptions/{name}", json={}, timeout=PATIENCE)  # it builds its schemas alone
        monkeypatch.setattr(AsyncBus, "declare_subscription", declare_together)
        threads = [threading.Thread(target=declare, args=[http]) for http in clients]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        shown = [secret for each in answers if (secret := each.json().get("secret"))]
        assert ([each.is_success for each in answers], shown) == ([True] * 2, [bus.webhook(name).secret])
        bus.unsubscribe(name)


def test_a_lost_answer_with_a_new_secret_says_how_to_get_another(embedded_url, monkeypatch):
    """The retry finds the secret stored, and shows only what it sends itself."""
    name, definition = f"hook-{token_hex(6)}", {"url": "https://example.com/"}
    calls = []
    monkeypatch.setattr(webhooks, "LOOK", 3_600)  # nothing is delivered, so that it can be removed

    async def fail_once(self: AsyncBus) -> list[Any]:
        if self.settings.source == "here":  # not for the deliveries
            calls.append(self)
        if len(calls) == 1:
            raise EngineUnreachable("the engine does not answer")
        return []

    with Bus.connect(embedded_url) as bus:
        with serving_here(embedded_url) as running, running.client() as http:
            with monkeypatch.context() as patched:
                patched.setattr(AsyncBus, "subscriptions", fail_once)
                failed = http.put(f"/subscriptions/{name}", json=definition)
            assert failed.status_code == 503
            assert "send one of your own" in failed.json()["detail"]
            again = http.put(f"/subscriptions/{name}", json={**definition, "secret": SECRET})
            assert (again.status_code, bus.webhook(name).secret) == (200, SECRET)
        bus.unsubscribe(name)  # no server delivers to it any more


# -- signatures -------------------------------------------------------------------------------------------------------


def test_signatures_follow_standard_webhooks():
    """The example of the specification's reference libraries."""
    webhook = Webhook("s", "https://example.com", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    found = signature(webhook, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert found == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


async def test_a_receiver_refuses_replays_and_forgeries(bus, embedded_url):
    receiver = Receiver()
    with receiving(receiver) as url:
        bus.declare_subscription("hook", url=url, secret=SECRET)
        async with delivering(bus, embedded_url):
            bus.page().add("risk_alert", "x")
            await until(lambda: receiver.events)
    headers, content = receiver.requests[0]
    assert receiver.take(headers, content) == 409  # sent again unchanged
    assert receiver.take(headers | {"webhook-id": "another"}, content) == 401
    assert receiver.take(headers, content.replace(b"x", b"y")) == 401
    later = str(int(headers["webhook-timestamp"]) + 1)
    assert receiver.take(headers | {"webhook-timestamp": later}, content) == 401
    long_ago = str(int(headers["webhook-timestamp"]) - 3600)
    assert receiver.take(headers | {"webhook-timestamp": long_ago}, content) == 400
    assert len(receiver.events) == 1


# -- targets ----------------------------------------------------------------------------------------------------------

PRIVATE = [
    "127.0.0.1", "127.8.8.8", "0.0.0.0", "10.0.0.1", "172.16.3.4", "192.168.1.1", "169.254.169.254", "100.64.0.1",  # noqa: S104  # nobody binds to it
    "224.0.0.1", "255.255.255.255", "240.0.0.1", "::1", "::", "fe80::1", "fc00::1", "ff02::1", "::ffff:127.0.0.1",
    "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "::7f00:1",
    "fec0::1", "192.88.99.1", "3fff::1", "::ffff:192.88.99.1",
]  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_local_addresses_are_not_public(address):
    assert not is_public(ip_address(address))


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946", "64:ff9b::5db8:d822"])
def test_internet_addresses_are_public(address):
    assert is_public(ip_address(address))


@pytest.mark.parametrize("host", ["a" * 64 + ".example", "a..example"])
async def test_a_host_that_cannot_be_resolved_is_a_failure(bus, embedded_url, host):
    bus.declare_subscription("hook", url=f"http://{host}/", secret=SECRET, retry_delay=0, max_attempts=2)
    async with delivering(bus, embedded_url, allow_private=False):
        bus.page().add("risk_alert", "x")
        await until(lambda: bus.dead_letters("hook"))
    assert bus.dead_letters("hook")[0].attempts == 2


async def test_an_event_for_a_private_address_becomes_a_dead_letter(bus, embedded_url):
    receiver = Receiver()
    with receiving(receiver) as url:
        port = url.rpartition(":")[2]
        bus.declare_subscription("hook", url=f"http://localhost:{port}", secret=SECRET, retry_delay=0, max_attempts=1)
        async with delivering(bus, embedded_url, allow_private=False):
            bus.page().add("risk_alert", "x")
            await until(lambda: bus.dead_letters("hook"))
    assert receiver.requests == []
    assert "not a public address" in bus.dead_letters("hook")[0].reason


def resolve_names_to(monkeypatch, *answers):
    """Make names resolve to these lists of addresses in turn; return the list of connections."""
    left, connected = list(answers), list[str]()

    async def getaddrinfo(_host, port, **_):
        return [(0, 0, 0, "", (address, port)) for address in left.pop(0)]

    async def connect(_self, host, *_):
        connected.append(host)

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo, raising=False)
    monkeypatch.setattr(httpcore2.AnyIOBackend, "connect_tcp", connect)
    return connected


async def test_a_rebound_name_is_connected_to_at_the_checked_address(monkeypatch):
    connected = resolve_names_to(monkeypatch, ["93.184.216.34"], ["127.0.0.1"])
    await CheckedNetwork(allow_private=False).connect_tcp("rebinding.example", 80)
    assert connected == ["93.184.216.34"]
    with pytest.raises(AddressRefused):
        await CheckedNetwork(allow_private=False).connect_tcp("rebinding.example", 80)
    assert connected == ["93.184.216.34"]


async def test_a_name_with_a_private_address_among_others_is_refused(monkeypatch):
    connected = resolve_names_to(monkeypatch, ["93.184.216.34", "10.0.0.1"])
    with pytest.raises(AddressRefused):
        await CheckedNetwork(allow_private=False).connect_tcp("mixed.example", 80)
    assert connected == []
