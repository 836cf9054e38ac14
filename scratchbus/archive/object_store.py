"""An archive in a cloud object store. Credentials come from the cloud's environment variables, or from the URL."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from scratchbus.errors import ArchiveUnavailable, InvalidURL, SettingsError, shown

try:
    import obstore
    from obstore.exceptions import AlreadyExistsError, BaseError, UnknownConfigurationKeyError
    from obstore.store import ObjectStore as Objects
    from obstore.store import from_url
except ImportError:  # an optional dependency
    raise SettingsError("archive_url: an object store needs obstore: pip install 'scratchbus[archive]'") from None

_LOGIN = re.compile(r"://[^/\s]*@")
"""The user and password in the URL of an endpoint, which obstore quotes."""


_ENDPOINT_OPTION = re.compile(r"((aws|azure|azure_storage)_)?endpoint(_url)?", re.IGNORECASE)
_ENDPOINT = re.compile(
    r"""https?://([^/\s]*@)?([\w.-]+|\[[\dA-Fa-f:.]+\])(:\d{0,5})?(/[^\s"<>\\^`{|}?#\x00-\x1f\x7f]*)?""", re.ASCII
)
"""An http URL without the characters that RFC 3986 excludes from a path: for some of them, and for a port above 65535,
obstore panics. It also has no query or fragment, to which obstore would add the names of files.
"""


class ObjectStore:
    """Files in an object store, as durable as the store makes them.

    The threads that send the requests of all stores start with the first request, and a forked child has none of them:
    there, a request would wait for ever, and raises ArchiveUnavailable instead.
    """

    _first_process: ClassVar[int | None] = None
    """The process that has these threads."""

    def __init__(self, objects: Objects, where: str) -> None:
        self._objects = objects
        self.where = where

    @classmethod
    def at(cls, url: str, retries: int = 10) -> Self:
        """Return the store at a URL; options of the store, such as region or endpoint, may follow a `?`.

        For s3, the user and password are an access key and its secret. Raises InvalidURL, which quotes neither.
        """
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        where = f"{parts.scheme}://{host}{parts.path}".rstrip("/")
        options: dict[str, Any] = dict(parse_qsl(parts.query))
        if parts.username and parts.scheme == "s3":
            options |= {"access_key_id": unquote(parts.username), "secret_access_key": unquote(parts.password or "")}
        for name, value in options.items():
            if _ENDPOINT_OPTION.fullmatch(name):
                _check_endpoint(where, name, value)
        client = {"allow_http": True} if options.get("endpoint", "").startswith("http://") else {}
        try:
            objects = from_url(where, config=options, client_options=client, retry_config={"max_retries": retries})  # type: ignore[call-overload]
            return cls(objects, where)
        except UnknownConfigurationKeyError:
            names = ", ".join(sorted(dict(parse_qsl(parts.query))))
            raise InvalidURL(f"archive_url: {where}: unknown option: {names}") from None
        except BaseException as problem:
            if not isinstance(problem, (BaseError, ValueError, TypeError)) and not _is_panic(problem):
                raise
            raise InvalidURL(f"archive_url: {where} cannot be used: {_first_line(problem)}") from None

    def list(self, prefix: str = "") -> list[str]:
        """Return the names of all files with this prefix, sorted."""
        folder = prefix.rpartition("/")[0]
        with self._explained(prefix):
            pages = obstore.list(self._objects, prefix=folder or None)
            return sorted(each["path"] for page in pages for each in page if each["path"].startswith(prefix))

    def get(self, name: str) -> bytes | None:
        """Return the content of a file, or None if there is none."""
        with self._explained(name):
            try:
                return bytes(obstore.get(self._objects, name).bytes())
            except FileNotFoundError:
                return None

    def get_part(self, name: str, start: int, length: int) -> bytes | None:
        """Return up to `length` bytes of a file from `start` on, fewer if it ends before; None if there is no file."""
        with self._explained(name):
            try:
                return bytes(obstore.get_range(self._objects, name, start=start, length=length))
            except FileNotFoundError:
                return None
            except BaseError as problem:
                if "range" not in str(problem).lower() or obstore.head(self._objects, name)["size"] > start:
                    raise
                return b""  # it ends before the part begins

    def put_new(self, name: str, content: bytes) -> bool:
        """Write a file atomically and durably; return False, and write nothing, if it exists."""
        with self._explained(name):
            try:
                obstore.put(self._objects, name, content, mode="create")
            except AlreadyExistsError:
                return False
            return True

    def replace(self, name: str, content: bytes) -> None:
        """Write a file durably and atomically, in place of the existing one."""
        with self._explained(name):
            obstore.put(self._objects, name, content)

    def delete(self, name: str) -> None:
        """Delete a file if it exists."""
        with self._explained(name):
            try:
                obstore.delete(self._objects, name)
            except FileNotFoundError:
                return

    @contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        process = os.getpid()
        ObjectStore._first_process = ObjectStore._first_process or process
        if ObjectStore._first_process != process:
            raise ArchiveUnavailable(
                f"archive {self.where}/{name}: object stores cannot be used in a process that was forked after its"
                " parent used one; start it with the method 'spawn' or 'forkserver' of multiprocessing instead"
            )
        try:
            yield
        except BaseException as problem:
            if not isinstance(problem, (BaseError, OSError)) and not _is_panic(problem):
                raise
            raise ArchiveUnavailable(
                f"archive {self.where}/{name}: {_first_line(problem)}; check the object store and the permissions"
                " of its key, then try again"
            ) from None


def _check_endpoint(where: str, name: str, value: str) -> None:
    """Raise InvalidURL for an endpoint that no server can have."""
    match = _ENDPOINT.fullmatch(value)
    if match is None or not 1 <= int((match[3] or "")[1:] or 80) <= 65535:
        raise InvalidURL(
            f"archive_url: {where}: {name}: {shown(value.rpartition('@')[2])} is not the URL of a server; write"
            " http://host:port or https://host:port, with a port from 1 to 65535"
        )


def _is_panic(problem: BaseException) -> bool:
    """Return whether an error is a panic of obstore, which is no Exception: for a setting that it did not check."""
    return type(problem).__name__ == "PanicException"


def _first_line(problem: BaseException) -> str:
    line = str(problem).strip().partition("\n")[0].rstrip(".:")
    return _LOGIN.sub("://***@", line) or type(problem).__name__
