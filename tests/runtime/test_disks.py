"""A machine whose disk is full is named: workers try to write, and report with their heartbeat where they cannot."""

from __future__ import annotations

import io
import logging
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from relevo.app import build
from relevo.config import Settings
from relevo.core import logs
from relevo.operators import fleet
from relevo.operators.gauges import Gauges
from relevo.runtime.disks import Disks, Unwritable

FULL = "No space left on device"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KB, full."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=0777", "none", str(folder)], check=True)
    try:
        with suppress(OSError), (folder / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * 4_096)
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.needs("mount")
def test_a_full_disk_is_seen_until_there_is_room(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of temporary files and that of the archive are each named while their disk is full; one with room is not."""
    monkeypatch.setattr(tempfile, "tempdir", str(small))
    disks = Disks((tmp_path, small))
    disks.look()
    assert disks.unwritable() == [Unwritable(str(small), FULL)] * 2
    (small / "filler").unlink()
    disks.look()
    assert disks.unwritable() == []
    assert list(small.iterdir()) == []


def test_what_may_not_be_written_at_all_is_no_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that is missing, or a system without a temporary folder, is left to the cycle that needs it."""
    monkeypatch.setattr(tempfile, "_get_default_tempdir", lambda *_: (_ for _ in ()).throw(FileNotFoundError()))
    monkeypatch.setattr(tempfile, "tempdir", None)
    disks = Disks((tmp_path / "missing",))
    disks.look()
    assert disks.unwritable() == []


def test_status_and_the_metric_name_host_and_place(
    make_settings: Callable[..., Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heartbeat reports what the look found, and that the last line of the log was lost; with room both go away."""
    monkeypatch.setattr(Disks, "start", lambda _: None)
    monkeypatch.setattr(logs._Handler, "trouble", None)
    monkeypatch.setattr(logging, "raiseExceptions", False)
    line = logging.LogRecord("relevo", logging.INFO, "", 0, "a line", None, None)
    host = socket.gethostname()
    with (
        build(make_settings()) as app,
        (tmp_path / "log").open("w") as log,
        io.TextIOWrapper(io.FileIO("/dev/full", "w"), write_through=True) as full_disk,
    ):
        app.worker.record_start("run", ["reaper", "dispatch"])

        def beat(*full: Unwritable) -> tuple[list[str], set[tuple[str, str]]]:
            app.worker._disks._full = full
            with app.database.transaction() as connection:
                app.worker.beat(connection)
            problems = fleet.status(app.database, app.settings).problems
            gauges = Gauges(app.database, app.settings, "watcher").collect()
            samples = [sample for each in gauges if each.name == "relevo_disk_full" for sample in each.samples]
            named = {(sample.labels["hostname"], sample.labels["place"]) for sample in samples}
            return [str(each) for each in problems if each.code == "disk_full"], named

        assert beat() == ([], set())
        handler = logs._Handler(full_disk)
        handler.handle(line)
        said, named = beat(Unwritable("/scratch", FULL))
        places = ["/scratch", "its log"]
        assert [
            f"on {host} cannot write to {place}: {FULL};" in each for place, each in zip(places, said, strict=True)
        ] == [True, True]
        assert named == {(host, "/scratch"), (host, "log")}
        handler.stream = log
        handler.handle(line)
        assert beat() == ([], set())
