"""The bus over TLS: trusted servers can be used, and each problem is explained in one line."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trustme

from scratchbus import AsyncBus, Bus
from scratchbus.cli import main
from scratchbus.daemon.exit_codes import ENGINE, OK
from scratchbus.engine import connect
from scratchbus.errors import BusClosed, EngineAuth, EngineUnreachable, InvalidURL, ScratchbusError
from scratchbus.eventlog import follow, reader, tail_readers
from tests.faults.servers import Server, free_port, system_binary
from tests.waiting import PATIENCE, eventually

pytestmark = pytest.mark.real

SECRET = "s3cr3t"


class TlsServers(NamedTuple):
    """The ports of the servers, and the directory of their certificates."""

    files: Path
    good: int
    expired: int
    other_host: int
    mutual: int
    plain: int

    def url(self, text: str) -> str:
        """Return a URL in which `<name>` stands for a port and `FILE:name` for a file."""
        for name, port in self._asdict().items():
            text = text.replace(f"<{name}>", f"127.0.0.1:{port}")
        return text.replace("FILE:", f"{self.files}/")


@pytest.fixture(scope="module")
def tls_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServers]:
    """Start servers with good and bad certificates; the embedded engine has no TLS."""
    binary = system_binary()
    if binary is None:
        pytest.skip("redis-server is not installed")
    files = tmp_path_factory.mktemp("tls")
    authority, another = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(files / "ca.pem")
    another.cert_pem.write_to_path(files / "another.pem")
    authority.issue_cert("me").private_key_and_cert_chain_pem.write_to_path(files / "me.pem")
    (files / "empty.pem").touch()
    servers: list[Server] = []

    def start(certificate: trustme.LeafCert, auth_clients: str = "no") -> int:
        port = free_port()
        own = files / f"{port}.pem"
        certificate.private_key_and_cert_chain_pem.write_to_path(own)
        options: dict[str, Any] = {
            "tls-port": str(port), "tls-cert-file": str(own), "tls-key-file": str(own), "requirepass": SECRET,
            "tls-ca-cert-file": str(files / "ca.pem"), "tls-auth-clients": auth_clients,
        }  # fmt: skip
        servers.append(Server(binary, **options))
        servers[-1].start()
        return port

    try:
        past, end = datetime(2020, 1, 1, tzinfo=UTC), datetime(2021, 1, 1, tzinfo=UTC)
        servers.append(Server(binary, tcp=True).start())
        yield TlsServers(
            files,
            good=start(authority.issue_cert("127.0.0.1")),
            expired=start(authority.issue_cert("127.0.0.1", not_before=past, not_after=end)),
            other_host=start(authority.issue_cert("example.org")),
            mutual=start(authority.issue_cert("127.0.0.1"), auth_clients="yes"),
            plain=servers[0].port,
        )
    finally:
        for server in servers:
            server.close()


TRUSTED = {
    "named authority": f"rediss://:{SECRET}@<good>?ssl_ca_certs=FILE:ca.pem",
    "no check": f"rediss://:{SECRET}@<good>?ssl_cert_reqs=none",
    "other name, unchecked": (f"rediss://:{SECRET}@<other_host>?ssl_ca_certs=FILE:ca.pem&ssl_check_hostname=false"),
    "client certificate": (
        f"rediss://:{SECRET}@<mutual>?ssl_ca_certs=FILE:ca.pem&ssl_certfile=FILE:me.pem&ssl_keyfile=FILE:me.pem"
    ),
}

WRONG: dict[str, tuple[str, type[ScratchbusError], str]] = {
    "another authority": (
        "rediss://:{}@<good>?ssl_ca_certs=FILE:another.pem",
        EngineUnreachable,
        r"is not trusted \(self-signed certificate in certificate chain\); .* ssl_ca_certs=FILE",
    ),
    "no authority": ("rediss://:{}@<good>", EngineUnreachable, "is not trusted"),
    "an expired certificate": (
        "rediss://:{}@<expired>?ssl_ca_certs=FILE:ca.pem",
        EngineUnreachable,
        r"is not trusted \(certificate has expired\); fix its certificate",
    ),
    "the certificate of another host": (
        "rediss://:{}@<other_host>?ssl_ca_certs=FILE:ca.pem",
        EngineUnreachable,
        "is not trusted .*certificate is not valid for '127.0.0.1'",
    ),
    "no client certificate": (
        "rediss://:{}@<mutual>?ssl_ca_certs=FILE:ca.pem",
        EngineUnreachable,
        "it may require a client certificate: ssl_certfile",
    ),
    "plain URL of a TLS port": ("redis://:{}@<good>", EngineUnreachable, "it may require TLS: rediss://"),
    "a missing file": (
        "rediss://:{}@<good>?ssl_ca_certs=FILE:nowhere.pem",
        InvalidURL,
        "the file of ssl_ca_certs does not exist",
    ),
    "an empty file": (
        "rediss://:{}@<good>?ssl_ca_certs=FILE:empty.pem",
        EngineUnreachable,
        "does not answer",
    ),
    "a wrong option": ("rediss://:{}@<good>?ssl_ca_cert=FILE:ca.pem", InvalidURL, "is not an engine URL"),
    "a wrong password": ("rediss://:wr0ng{}@<good>?ssl_ca_certs=FILE:ca.pem", EngineAuth, "user name or password"),
}


@pytest.mark.parametrize("name", TRUSTED)
async def test_a_trusted_server_can_be_used(tls_servers: TlsServers, name: str) -> None:
    url = tls_servers.url(TRUSTED[name])
    with Bus.connect(url, source="tester") as bus:
        added = bus.page().add("observation", "over TLS")
        assert added.id in [event.subject for event in bus.events(pages=["main"])]
        assert SECRET not in str(bus.status())
    async with AsyncBus.connect(url, source="tester") as other:
        assert await other.page().get(added.id) == added


def test_closing_a_bus_ends_its_readers_over_tls_at_once(
    tls_servers: TlsServers, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (follow, reader, tail_readers):
        monkeypatch.setattr(module, "MAX_BLOCK_MS", 90_000)  # so that no read ends by itself
    monkeypatch.setattr(connect, "_WAIT_TIMEOUT", 100.0)
    before = set(threading.enumerate())
    bus = Bus.connect(tls_servers.url(TRUSTED["named authority"]), source="tester")
    capsys.readouterr()  # the warning that the server persists nothing
    with bus.view(), ThreadPoolExecutor() as pool:
        following = pool.submit(list, bus.events(bus.position(), follow=True))
        eventually(lambda: len(bus._reader._busy) == 2)
        bus.close()
        with pytest.raises(BusClosed):
            following.result(PATIENCE)
    eventually(lambda: set(threading.enumerate()) <= before)
    assert capsys.readouterr().err == ""


async def all_transports_closed() -> None:
    """Wait until all TLS transports are closed; redis-py does not after a refusal."""
    loop: Any = asyncio.get_running_loop()
    while any(each.get_extra_info("socket").fileno() >= 0 for each in loop._transports.values()):  # noqa: ASYNC110
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("name", WRONG)
async def test_each_tls_problem_is_explained_in_one_line(tls_servers: TlsServers, name: str) -> None:
    template, error, said = WRONG[name]
    url = tls_servers.url(template.format(SECRET))
    with pytest.raises(error, match=said) as caught:
        Bus.connect(url)
    with pytest.raises(error, match=said) as other:
        await AsyncBus.connect(url)
    await all_transports_closed()
    for problem in (caught.value, other.value):
        assert "\n" not in str(problem)
        assert SECRET not in repr(problem)
        assert SECRET not in repr(problem.__cause__)


async def test_tls_to_a_plain_port_is_explained(tls_servers: TlsServers) -> None:
    """A server without TLS waits for more data, so the client's timeout ends the attempt."""
    url = tls_servers.url("rediss://<plain>?ssl_ca_certs=FILE:ca.pem")
    with pytest.raises(EngineUnreachable, match="it may not use TLS on this port: redis://"):
        Bus.connect(url, socket_timeout="100ms")
    with pytest.raises(EngineUnreachable, match="it may not use TLS on this port: redis://"):
        await AsyncBus.connect(url, socket_timeout="100ms")


@pytest.mark.parametrize("login", ["", f"me:{SECRET}@"])
def test_a_wrong_option_is_named(login: str) -> None:
    with pytest.raises(InvalidURL, match="unexpected keyword argument 'ssl_ca_cert'") as caught:
        Bus.connect(f"rediss://{login}127.0.0.1:1?ssl_ca_cert=ca.pem")
    assert SECRET not in str(caught.value)


def test_the_reason_is_hidden_if_it_may_quote_the_password() -> None:
    with pytest.raises(InvalidURL, match=r"^'redis://me:\*\*\*@127.0.0.1' is not an engine URL; write"):
        Bus.connect("redis://me:part?s3cr3t=1@127.0.0.1")


def test_a_wrong_value_is_named_if_the_url_has_no_password() -> None:
    with pytest.raises(InvalidURL, match="maybe"):
        Bus.connect("rediss://127.0.0.1:1?ssl_cert_reqs=maybe")


def test_the_command_line_connects_over_tls(
    tls_servers: TlsServers, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SCRATCHBUS_URL", tls_servers.url(f"rediss://:{SECRET}@<good>?ssl_ca_certs=FILE:ca.pem"))
    assert main(["status"]) == OK
    assert SECRET not in "".join(capsys.readouterr())
    monkeypatch.setenv("SCRATCHBUS_URL", tls_servers.url(f"rediss://:{SECRET}@<good>?ssl_ca_certs=FILE:another.pem"))
    assert main(["status"]) == ENGINE
    _, err = capsys.readouterr()
    assert err.startswith("scratchbus: the engine at rediss://:***@127.0.0.1:")
    assert err.count("\n") == 1
