"""OCDS from files: read once and again when changed, broken, packed, too large, and many."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from relevo.sources import files, text
from relevo.sources.ocds import Ocds
from support.ocds_pages import Pages, release
from support.source_context import MemorySourceContext, settings_for


@pytest.fixture
def source(pages: Pages) -> Ocds:
    """The adapter, pointed at it."""
    return Ocds(settings_for(ocds_url=f"{pages.url}/1"))


def refuse_to_open(path: Path, *_: object) -> None:
    """Do as a file does that somebody else may read alone."""
    raise PermissionError(13, "Permission denied", str(path))


class TestFiles:
    """A folder of packages."""

    def test_files_are_read_once_and_again_when_changed(self, tmp_path: Path, context: MemorySourceContext) -> None:
        """A file is read when it is new or changed; other files are left alone."""
        source = Ocds(settings_for(ocds_folder=tmp_path))
        (tmp_path / "a.json").write_text(json.dumps({"releases": [release(1)]}))
        (tmp_path / "notes.txt").write_text("not this")
        (tmp_path / ".hidden.json").write_text("nor this")
        context.run(source)
        assert context.run(source)[-1].outcome == "unchanged"
        (tmp_path / "a.json").write_text(json.dumps({"releases": [release(1, day=2, title="Changed")]}))
        context.run(source)
        assert [item.nombre for item in context.items.values()] == ["Changed"]

    @pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson", "A.JSONL", "a.NDJson"])
    def test_lines(self, tmp_path: Path, context: MemorySourceContext, name: str) -> None:
        """JSON lines hold one release or package each, however the file's name is written."""
        (tmp_path / name).write_text("\n".join(json.dumps(release(n)) for n in range(1, 4)))
        context.run(Ocds(settings_for(ocds_folder=tmp_path)))
        assert len(context.items) == 3

    def test_a_broken_file_is_rejected_and_mended(self, tmp_path: Path, context: MemorySourceContext) -> None:
        """A file that is no JSON is a reject by its name, and resolved when it is."""
        source = Ocds(settings_for(ocds_folder=tmp_path))
        (tmp_path / "a.json").write_text('{"releases": [')
        (tmp_path / "b.json").write_text(json.dumps(release(2)))
        context.run(source)
        assert (set(context.rejects), context.codes()) == ({"a.json"}, {"ocds-abc123-2"})
        assert context.run(source)[-1].outcome == "unchanged"
        (tmp_path / "a.json").write_text(json.dumps(release(1)))
        context.run(source)
        assert (context.rejects, len(context.items)) == ({}, 2)

    def test_a_file_that_cannot_be_read_yet_is_tried_again(
        self, tmp_path: Path, context: MemorySourceContext, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A file without permission is tried again by itself: giving it changes neither its size nor its date."""
        source = Ocds(settings_for(ocds_folder=tmp_path))
        (tmp_path / "a.json").write_text(json.dumps(release(1)))
        with monkeypatch.context() as locked:
            locked.setattr(Path, "open", refuse_to_open)
            context.run(source)
            context.due = {"a.json"}
            context.run(source)
        assert context.rejects["a.json"].retry
        assert not context.due, "each try is counted"
        context.due = {"a.json"}
        context.run(source)
        assert (context.rejects, len(context.items)) == ({}, 1)

    def test_many_rejects_leave_room_in_the_cursor(
        self, tmp_path: Path, context: MemorySourceContext, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """However much of however many files is bad, the cursor fits its column, and nothing is told twice."""
        monkeypatch.setattr(files, "MAX_CURSOR_BYTES", 20_000)
        monkeypatch.setattr(files, "_GRANULARITY_NS", 0)
        source = Ocds(settings_for(ocds_folder=tmp_path))
        for file in range(30):
            bad = [release(100 * file + number) | {"tender": "none"} for number in range(1, 50)]
            (tmp_path / f"{file:02}.json").write_text(json.dumps({"releases": [*bad, release(100 * file + 99)]}))
        context.run(source)
        assert len(json.dumps(context.cursor)) < 21_000
        assert len(context.items) == 30
        assert context.run(source)[-1].outcome == "unchanged"

    def test_a_reject_that_is_tried_again_is_settled(
        self, tmp_path: Path, context: MemorySourceContext, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What is still bad, gone or mended does not stay due: also of files that only the mark remembers."""
        monkeypatch.setattr(files, "MAX_TRACKED", 0)
        monkeypatch.setattr(files, "_GRANULARITY_NS", 0)
        source = Ocds(settings_for(ocds_folder=tmp_path))
        for name in ("bad.json", "gone.json", "mended.json"):
            (tmp_path / name).write_text("{")
        context.run(source)
        (tmp_path / "gone.json").unlink()
        stat = (tmp_path / "mended.json").stat()
        (tmp_path / "mended.json").write_text(json.dumps(release(1)))
        os.utime(tmp_path / "mended.json", ns=(stat.st_atime_ns, stat.st_mtime_ns))
        context.due = set(context.rejects)
        context.run(source)
        assert (set(context.rejects), context.due) == ({"bad.json", "gone.json"}, set())
        assert len(context.items) == 1

    def test_a_pipe_in_place_of_a_rejected_file_holds_up_nobody(
        self, tmp_path: Path, context: MemorySourceContext
    ) -> None:
        """What is no plain file is not opened, also when a reject of its name is tried again."""
        source = Ocds(settings_for(ocds_folder=tmp_path))
        (tmp_path / "a.json").write_text("{")
        context.run(source)
        (tmp_path / "a.json").unlink()
        os.mkfifo(tmp_path / "a.json")
        context.due = {"a.json"}
        context.run(source)
        assert set(context.rejects) == {"a.json"}

    def test_a_missing_folder_of_handled_files_stops_nothing(
        self, tmp_path: Path, context: MemorySourceContext
    ) -> None:
        """A reject that is tried again while the folder of handled files is gone leaves the others alone."""
        drop, done = tmp_path / "drop", tmp_path / "done"
        drop.mkdir(), done.mkdir()
        source = Ocds(settings_for(ocds_folder=drop, ocds_done_dir=done))
        (drop / "a.json").write_text("{")
        context.run(source)
        (drop / "a.json").unlink()
        done.rmdir()
        (drop / "b.json").write_text(json.dumps(release(2)))
        context.due = {"a.json"}
        context.run(source)
        assert len(context.items) == 1

    def test_a_file_too_large(self, tmp_path: Path, context: MemorySourceContext) -> None:
        """More than HTTP_MAX_BYTES are not read into memory."""
        (tmp_path / "a.json").write_text(" " * 5_000)
        context.run(Ocds(settings_for(ocds_folder=tmp_path, http_max_bytes=1_000)))
        assert "more than 1000 bytes" in context.rejects["a.json"].reason


class TestBigDocuments:
    """A document longer than a batch is read once."""

    def test_a_page(self, pages: Pages, source: Ocds, context: MemorySourceContext) -> None:
        """Three batches of one page cost one request."""
        pages.pages["/1"] = {"releases": [release(number) for number in range(1_200)]}
        answers = context.run(source)
        assert [len(answer.items) for answer in answers] == [500, 500, 200]
        assert pages.paths() == ["/1"]

    def test_a_file(self, tmp_path: Path, context: MemorySourceContext, monkeypatch: pytest.MonkeyPatch) -> None:
        """Three batches of one file read it once; a process that starts in between reads it once more and goes on."""
        (tmp_path / "a.json").write_text(json.dumps({"releases": [release(number) for number in range(1_200)]}))
        reads: list[int] = []
        loads = text.loads
        monkeypatch.setattr(text, "loads", lambda body: (reads.append(len(body)), loads(body))[1])
        source = Ocds(settings_for(ocds_folder=tmp_path))
        context.step(source)
        context.step(source)
        assert len(reads) == 1
        context.step(Ocds(settings_for(ocds_folder=tmp_path)))
        assert (len(reads), len(context.items)) == (2, 1_200)

    def test_any_number_of_files(
        self, tmp_path: Path, context: MemorySourceContext, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Beyond any bound of the cursor all files are read, the newest too."""
        monkeypatch.setattr(files, "MAX_TRACKED", 4)
        monkeypatch.setattr(files, "MOST_AT_ONCE", 3)
        monkeypatch.setattr(files, "_GRANULARITY_NS", 0)
        source = Ocds(settings_for(ocds_folder=tmp_path))
        for number in range(12):
            (tmp_path / f"{number:02}.json").write_text(json.dumps(release(number)))
        context.run(source)
        (tmp_path / "00-new.json").write_text(json.dumps(release(100)))
        context.run(source)
        assert len(context.items) == 13
        assert context.run(source)[-1].outcome == "unchanged"
