"""Archive stores: directories and object stores behave alike, and fail with one-line errors."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from scratchbus.archive.object_store import ObjectStore
from scratchbus.archive.stores import DirectoryStore, open_store
from scratchbus.errors import ArchiveUnavailable, InvalidURL


@pytest.fixture(params=["directory", "objects"])
def store(request: pytest.FixtureRequest, tmp_path: Path):
    return DirectoryStore(tmp_path / "new") if request.param == "directory" else ObjectStore(MemoryStore(), "s3://b")


def test_files_are_listed_and_read_until_deleted(store):
    assert store.list() == []
    assert store.get("a/0000/one") is None
    assert store.put_new("a/0000/one", b"1")
    assert store.put_new("a/0000/two", b"2")
    assert store.put_new("b/one", b"3")
    assert store.get("a/0000/one") == b"1"
    assert store.list() == ["a/0000/one", "a/0000/two", "b/one"]
    assert store.list("a/0000/") == ["a/0000/one", "a/0000/two"]
    assert store.list("a/0000/t") == ["a/0000/two"]
    store.delete("a/0000/one")
    store.delete("a/0000/one")
    assert store.list("a/") == ["a/0000/two"]


def test_a_part_of_a_file_ends_with_the_file(store):
    assert store.put_new("a/one", b"0123456789")
    assert store.get_part("a/one", 2, 3) == b"234"
    assert store.get_part("a/one", 8, 5) == b"89"
    assert store.get_part("a/one", 10, 5) == store.get_part("a/one", 12, 5) == b""
    assert store.get_part("a/two", 0, 5) is None


def test_only_replace_overwrites_a_file(store):
    assert store.put_new("a/one", b"1")
    assert not store.put_new("a/one", b"2")
    assert store.get("a/one") == b"1"
    store.replace("a/one", b"3")
    store.replace("a/two", b"4")
    assert (store.get("a/one"), store.get("a/two")) == (b"3", b"4")
    assert store.list() == ["a/one", "a/two"]


def test_a_new_file_and_its_directories_are_synced(tmp_path: Path, monkeypatch):
    synced, sync = set[str](), os.fsync

    def note(handle: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{handle}"))
        sync(handle)

    monkeypatch.setattr(os, "fsync", note)
    DirectoryStore(tmp_path / "new").put_new("a/0000/one", b"1")
    folders = {str(tmp_path / name) for name in ("", "new", "new/a", "new/a/0000")}
    assert folders < synced
    assert any("/.one." in name for name in synced - folders)


@pytest.mark.parametrize("write", [DirectoryStore.put_new, DirectoryStore.replace])
def test_a_full_disk_is_an_error_and_leaves_no_file(tmp_path: Path, monkeypatch, write):
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    store = DirectoryStore(tmp_path)
    with pytest.raises(ArchiveUnavailable, match="No space left on device; check the disk"):
        write(store, "a/one", b"1")
    assert store.list() == []


@pytest.mark.parametrize("write", ["put_new", "replace"])
def test_nothing_is_written_where_an_archive_was_mounted(tmp_path: Path, write: str):
    directory = tmp_path / "archive"
    store = DirectoryStore(directory)
    store.put_new("a", b"1")
    assert store.get("a") == b"1"
    directory.rename(tmp_path / "elsewhere")
    directory.mkdir()
    with pytest.raises(ArchiveUnavailable, match="mount it again"):
        getattr(store, write)("b", b"2")
    assert list(directory.iterdir()) == []


def test_an_unusable_directory_is_an_error(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    store = DirectoryStore(tmp_path / "file")
    with pytest.raises(ArchiveUnavailable, match="Not a directory"):
        store.put_new("a/one", b"1")
    with pytest.raises(ArchiveUnavailable, match="Not a directory"):
        store.get("a/one")


@pytest.mark.parametrize("login", ["", "KEY:s3cr3t@", "KEY:s3cr3t%2540x@"])
def test_the_error_of_an_unreachable_store_hides_its_key(login: str, monkeypatch):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    url = f"s3://KEY:s3cr3t@bucket/some/prefix?endpoint=http://{login}127.0.0.1:1&region=here"
    store = ObjectStore.at(url, retries=0)
    assert store.where == "s3://bucket/some/prefix"
    for act in (lambda: store.get("a"), lambda: store.put_new("a", b"1"), lambda: store.list("a/")):
        with pytest.raises(
            ArchiveUnavailable, match=r"archive s3://bucket/some/prefix/a/?: .*check the object"
        ) as raised:
            act()
        assert "s3cr3t" not in str(raised.value)
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("ftp://host/x", "ftp:// is not an archive URL"),
        ("redis://user:s3cr3t@host", "redis:// is not an archive URL"),
        ("file://host/x", "names a host"),
        ("s3://KEY:s3cr3t@bucket/x?no_such_option=s3cr3t", "unknown option: no_such_option"),
        ("s3://", "cannot be used"),
        ("s3://KEY:s3cr3t@bucket/x?proxy_url=http://s3cr3t", "s3://bucket/x cannot be used"),
        ("s3://KEY:s3cr3t@[bucket", "host of this s3:// URL is not valid"),
        ("s3://KEY:s3cr3t@bu\u2100cket", "host of this s3:// URL is not valid"),
        ("file://KEY:s3cr3t@[", "host of this file:// URL is not valid"),
        ("file://user:s3cr3t@host/x", "'file://host/x' names a host"),
        ("some\0directory", "no directory can have the name"),
        ("some\ud800directory", "no directory can have the name"),
        ("file:///some%00directory", "no directory can have the name"),
    ],
)
def test_the_error_of_an_invalid_archive_url_hides_its_key(url, reason):
    with pytest.raises(InvalidURL, match=reason) as raised:
        open_store(url)
    assert "s3cr3t" not in str(raised.value)


@pytest.mark.parametrize(
    "endpoint",
    [
        "//h:0",
        "//h:99999",
        "//h:text",
        "//h:-1",
        "//h: 80",
        "//h:1x",
        "//h:123456",
        "//",
        "//[::1",
        "//a b:9",
        '//h/"',
        "//h/a b",
        "//h/<x>",
        "//h/`",
        "//h/%23x",
        "//h/p?q=1",
        "//é:1",
    ],
)
@pytest.mark.parametrize("name", ["endpoint", "AWS_ENDPOINT_URL", "azure_storage_endpoint"])
def test_an_endpoint_that_no_server_has_is_refused(name: str, endpoint: str) -> None:
    for login in ("", "//KEY:s3cr3t@"):
        url = f"s3://bucket/x?{name}=http:{endpoint.replace('//', login or '//')}"
        with pytest.raises(InvalidURL, match="is not the URL of a server; write http://host:port or") as raised:
            open_store(url)
        assert f"archive_url: s3://bucket/x: {name}: " in str(raised.value)
        assert "s3cr3t" not in str(raised.value)


@pytest.mark.parametrize("endpoint", ["h:9000", "KEY:s3cr3t@h:9000", "ftp://h:9000", "nonsense"])
def test_an_endpoint_without_http_is_refused(endpoint: str) -> None:
    with pytest.raises(InvalidURL, match=r"endpoint: .*is not the URL of a server; write http://") as raised:
        open_store(f"s3://bucket/x?endpoint={endpoint}")
    assert "s3cr3t" not in str(raised.value)


@pytest.mark.parametrize(
    "endpoint",
    [
        "h",
        "h:9000",
        "h:65535/",
        "a_b.c-d:1/path/x",
        "h/a:b,(c)/@d/~e%2520f",
        "[::1]:9000",
        "KEY:s3cr3t@127.0.0.1:1",
    ],
)
def test_an_endpoint_may_have_a_port_and_a_path(endpoint: str) -> None:
    assert open_store(f"s3://bucket/x?endpoint=http://{endpoint}&region=here").where == "s3://bucket/x"


def test_an_endpoint_of_the_environment_that_obstore_panics_at_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT", "https://127.0.0.1:99999")
    store = ObjectStore.at("s3://KEY:s3cr3t@bucket/x?region=here", retries=0)
    with pytest.raises(ArchiveUnavailable, match=r"archive s3://bucket/x/a: .*InvalidPort; check the object store"):
        store.get("a")


def test_a_directory_may_be_the_root_of_a_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DirectoryStore(tmp_path)
    store.put_new("a/0000/one", b"1")
    (tmp_path / "lost+found").mkdir()
    scan = os.scandir

    def without_rights(folder: Path) -> object:
        if folder.name == "lost+found":
            raise PermissionError(13, "Permission denied")
        return scan(folder)

    monkeypatch.setattr("os.scandir", without_rights)
    assert store.list() == ["a/0000/one"]


def test_a_home_directory_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidURL, match="the home directory in '~nobody-of-this-name/archive' is unknown"):
        open_store("~nobody-of-this-name/archive")


def test_a_directory_is_given_as_a_path_or_a_url(tmp_path: Path):
    DirectoryStore(tmp_path / "a b").put_new("x", b"1")
    for url in (f"{tmp_path}/a b", f"file://{tmp_path}/a%20b", f"file://localhost{tmp_path}/a%20b"):
        assert open_store(url).list() == ["x"]
