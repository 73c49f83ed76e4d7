"""The contract of an archive's store, against a folder and a real S3 server, and what each says when it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from relevo.core.errors import ArchiveError, ArchiveMissingError, ArchiveMonthError
from relevo.core.model import StoredObject
from relevo.stores import s3 as s3_module
from relevo.stores.folder import FolderStore
from support.old_months import open_store

KEY = "notification_deliveries/year=2026/month=08/part-00001.parquet"


def fetched(store, key: str, tmp_path: Path) -> bytes:
    """Return an object's bytes."""
    path = tmp_path / "fetched"
    store.fetch(key, path)
    return path.read_bytes()


def test_what_was_put_is_fetched_and_listed(store, file_of, tmp_path) -> None:
    """An object comes back byte for byte, under its key, with its size; an empty one too."""
    content = os.urandom(3_000_000)
    assert store.put(KEY, file_of(content))
    assert store.put("a/manifest.json", file_of(b""))
    assert fetched(store, KEY, tmp_path) == content
    assert fetched(store, "a/manifest.json", tmp_path) == b""
    assert list(store.listing("")) == [StoredObject("a/manifest.json", 0), StoredObject(KEY, 3_000_000)]
    assert list(store.listing("notification_deliveries/year=2026/")) == [StoredObject(KEY, 3_000_000)]
    assert list(store.listing("nothing/")) == []


def test_what_is_there_stays_unless_it_is_to_be_replaced(store, file_of, tmp_path) -> None:
    """A second upload by a process that should be dead changes nothing; a replacement on purpose does."""
    assert store.put(KEY, file_of(b"first"))
    assert not store.put(KEY, file_of(b"second"))
    assert fetched(store, KEY, tmp_path) == b"first"
    assert store.put(KEY, file_of(b"third"), replace=True)
    assert fetched(store, KEY, tmp_path) == b"third"
    assert [each.size for each in store.listing("")] == [5]


def test_of_many_at_once_one_wins(store, file_of, tmp_path) -> None:
    """Eight uploads of one key at once leave one whole object, and exactly one of them says that it was its own."""
    files = [file_of(bytes([n]) * 300_000) for n in range(8)]
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda path: store.put(KEY, path), files))
    assert won.count(True) == 1
    assert fetched(store, KEY, tmp_path) == files[won.index(True)].read_bytes()


def test_a_large_object_goes_in_pieces(store, file_of, tmp_path, monkeypatch) -> None:
    """What is too large for one request is put together by the store, conditions and all."""
    monkeypatch.setattr(s3_module, "_WHOLE", 1_000)
    monkeypatch.setattr(s3_module, "_PIECE", 5 << 20)
    content = os.urandom(12_000_001)
    assert store.put(KEY, file_of(content))
    assert fetched(store, KEY, tmp_path) == content
    assert not store.put(KEY, file_of(os.urandom(6 << 20)))
    assert fetched(store, KEY, tmp_path) == content
    store.tidy("")
    assert fetched(store, KEY, tmp_path) == content


def test_a_missing_object_is_told_apart(store, tmp_path) -> None:
    """Not there is not the same as cannot be asked."""
    with pytest.raises(ArchiveMissingError, match=r"There is no nothing/at-all"):
        store.fetch("nothing/at-all", tmp_path / "x")


def test_a_killed_upload_leaves_no_object(tmp_path, file_of) -> None:
    """A process that dies in the middle of a copy leaves nothing under the key, and tidying takes away the rest."""
    (tmp_path / "cold").mkdir()
    store = open_store(archive_folder=tmp_path / "cold")
    source = file_of(os.urandom(1_000_000))
    program = (
        "import os, shutil, signal, sys\nfrom pathlib import Path\n"
        "from relevo.stores.folder import FolderStore\n"
        "def half(source, target, size):\n"
        "    target.write(source.read(1000)); target.flush(); os.kill(os.getpid(), signal.SIGKILL)\n"
        "shutil.copyfileobj = half\n"
        "FolderStore(Path(sys.argv[1]), 'relevo').put(sys.argv[2], Path(sys.argv[3]))\n"
    )
    died = subprocess.run([sys.executable, "-c", program, str(tmp_path / "cold"), KEY, str(source)], check=False)
    assert died.returncode == -9
    assert list(store.listing("")) == []
    assert len([each for each in (tmp_path / "cold").rglob("*") if each.is_file()]) == 1
    store.tidy("notification_deliveries/")
    assert [each for each in (tmp_path / "cold").rglob("*") if each.is_file()] == []
    assert store.put(KEY, source)


def test_an_upload_in_pieces_that_died_is_tidied(s3_settings, s3, file_of) -> None:
    """Pieces without an object cost money for ever: tidying aborts them, below its prefix only."""
    store, client, bucket = open_store(**s3_settings), s3.client(), s3_settings["archive_bucket"]
    for key in (f"relevo/{KEY}", "others/thing"):
        client.create_multipart_upload(Bucket=bucket, Key=key)
    store.tidy("notification_deliveries/")
    left = client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])
    assert [each["Key"] for each in left] == ["others/thing"]


def complaint(store, file_of) -> str:
    """Return what a store says when it cannot put."""
    with pytest.raises(ArchiveError) as caught:
        store.put(KEY, file_of(b"x"))
    return str(caught.value)


def test_an_s3_service_that_cannot_says_why(s3_settings, s3, file_of, monkeypatch) -> None:
    """A missing bucket, wrong or missing credentials and a service that is down are told apart, without a secret."""
    absent = open_store(**s3_settings | {"archive_bucket": "not-there"})
    assert "There is no bucket not-there" in complaint(absent, file_of)
    gone = open_store(**s3_settings | {"archive_endpoint": "http://127.0.0.1:9", "archive_timeout_ms": 300})
    assert "did not answer" in complaint(gone, file_of)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-and-hidden")
    said = complaint(open_store(**s3_settings), file_of)
    assert "refused our credentials (SignatureDoesNotMatch)" in said
    assert "wrong-and-hidden" not in said
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    assert "refused our credentials" in complaint(open_store(**s3_settings), file_of)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert "There are no credentials" in complaint(open_store(**s3_settings), file_of)


def test_a_folder_that_cannot_says_why(tmp_path, file_of, monkeypatch) -> None:
    """A full disk, and a file where a folder should be, are told apart; nothing half is left."""
    (tmp_path / "cold").mkdir()
    store = open_store(archive_folder=tmp_path / "cold")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("relevo.stores.folder.shutil.copyfileobj", full)
    said = complaint(store, file_of)
    assert "No space left on device" in said
    assert "make room" in said
    monkeypatch.undo()
    assert list(store.listing("")) == []
    assert [each for each in (tmp_path / "cold").rglob("*") if each.is_file()] == []
    (tmp_path / "cold" / "relevo" / "licitaciones").write_text("in the way")
    with pytest.raises(ArchiveError, match=r"cannot be used for licitaciones/x: File exists"):
        store.put("licitaciones/x", file_of(b"x"))


def test_a_folder_that_is_not_there_is_not_made(tmp_path, file_of) -> None:
    """It may be a disk that is not mounted: nothing is written beneath its place, and the next step is named."""
    store = open_store(archive_folder=tmp_path / "mnt" / "cold")
    for call in (lambda: store.put(KEY, file_of(b"x")), lambda: store.listing(""), lambda: store.tidy("")):
        with pytest.raises(ArchiveError, match="is not there"):
            call()
    assert not (tmp_path / "mnt").exists()
    default = FolderStore(tmp_path / "beside" / "data", "relevo", ours=True)
    assert default.put(KEY, file_of(b"x"))


@pytest.mark.parametrize("link", ["relevo", "relevo/notification_deliveries/year=2026", f"relevo/{KEY}"])
def test_a_link_below_the_folder_is_refused(tmp_path, file_of, link) -> None:
    """It may lead to another disk, and listings do not follow it: nothing is read, written or listed through it."""
    folder, elsewhere = tmp_path / "cold", tmp_path / "elsewhere"
    folder.mkdir()
    store = open_store(archive_folder=folder)
    assert store.put(KEY, file_of(b"x"))
    (folder / link).rename(elsewhere)
    (folder / link).symlink_to(elsewhere)
    for call in (
        lambda: store.put(KEY, file_of(b"y")),
        lambda: store.put(KEY, file_of(b"y"), replace=True),
        lambda: store.fetch(KEY, tmp_path / "fetched"),
        lambda: store.listing(""),
        lambda: store.listing(KEY),
        lambda: store.tidy("notification_deliveries/"),
    ):
        with pytest.raises(ArchiveMonthError, match=r"is a symbolic link\. Replace the link with its target"):
            call()
    (folder / link).unlink()
    elsewhere.rename(folder / link)
    assert fetched(store, KEY, tmp_path) == b"x"
    (tmp_path / "led").symlink_to(folder)
    assert [each.key for each in open_store(archive_folder=tmp_path / "led").listing("")] == [KEY]


@pytest.mark.needs("mount")
def test_a_disk_that_is_really_full(tmp_path, file_of) -> None:
    """On a file system of one megabyte, an upload of two fails in words and leaves nothing."""
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(small)], check=True)
    try:
        (small / "cold").mkdir()
        store = open_store(archive_folder=small / "cold")
        assert store.put("a/small", file_of(b"x" * 1_000))
        with pytest.raises(ArchiveError, match="make room"):
            store.put(KEY, file_of(os.urandom(2_000_000)))
        assert list(store.listing("")) == [StoredObject("a/small", 1_000)]
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_service_without_conditions_is_used_with_care(s3_settings, file_of, tmp_path, monkeypatch) -> None:
    """Where If-None-Match is not implemented, the store looks first, and still replaces nothing by chance."""
    store = open_store(**s3_settings)
    real, refused = store._client.put_object, threading.Event()

    def picky(**given: Any) -> Any:
        if "IfNoneMatch" in given:
            refused.set()
            error = {"Error": {"Code": "NotImplemented", "Message": "A header you provided implies functionality"}}
            raise store._client.exceptions.ClientError(error, "PutObject")
        return real(**given)

    monkeypatch.setattr(store._client, "put_object", picky)
    assert store.put(KEY, file_of(b"first"))
    assert not store.put(KEY, file_of(b"second"))
    assert refused.is_set()
    assert fetched(store, KEY, tmp_path) == b"first"


@pytest.mark.parametrize("at_once", [1 << 20, 10], ids=["whole", "in pieces"])
def test_a_service_that_heeds_no_condition(s3_settings, file_of, tmp_path, monkeypatch, at_once) -> None:
    """Some let an upload replace what is there, whatever they are asked: the store looks before it begins."""
    monkeypatch.setattr(s3_module, "_WHOLE", at_once)
    store = open_store(**s3_settings)
    calls = {name: getattr(store._client, name) for name in ("put_object", "complete_multipart_upload")}

    def heedless(name: str) -> Any:
        return lambda **given: calls[name](**{each: given[each] for each in given if each != "IfNoneMatch"})

    for name in calls:
        monkeypatch.setattr(store._client, name, heedless(name))
    assert store.put(KEY, file_of(b"first of all"))
    assert not store.put(KEY, file_of(b"second of all"))
    assert fetched(store, KEY, tmp_path) == b"first of all"
