"""JSON lines in a folder: read once, as they grow, with bad lines named."""

from __future__ import annotations

import json
import os
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from relevo.sources import files
from relevo.sources.folder import Folder
from relevo.sources.text import reject
from support.source_context import MemorySourceContext, settings_for


@pytest.fixture
def source(tmp_path: Path) -> Folder:
    """The adapter on an empty folder."""
    return Folder(settings_for(folder_source_dir=tmp_path))


def line(number: int, **more: object) -> str:
    """Make one line."""
    return json.dumps({"codigo": f"{number}-1-LE26", "nombre": f"Compra {number}"} | more) + "\n"


class TestSample:
    """The bundled sample."""

    def test_it_shows_life(self, context: MemorySourceContext) -> None:
        """Without a folder of one's own a dozen open tenders are told, whatever day it is, and announced at once."""
        source = Folder(settings_for())
        context.time = datetime(2031, 7, 1, tzinfo=UTC)
        [answer] = context.run(source)
        assert (len(answer.items), answer.rejects, source.seeds_silently) == (12, (), False)
        for item in answer.items:
            assert item.announces
            assert item.namespace == "sample"
            assert item.rubros
            assert item.region
            assert item.tipo
            assert item.publicada_at
            assert item.publicada_at < context.time
            assert item.cierra_at
            assert item.cierra_at > context.time + timedelta(days=1)
        assert {item.moneda for item in answer.items} >= {"CLP", "CLF", "USD"}
        assert context.run(source)[-1].outcome == "unchanged"


class TestLines:
    """What a line may say."""

    def test_what_a_line_leaves_open(self, tmp_path: Path, source: Folder, context: MemorySourceContext) -> None:
        """A day is whole, up to its last second; money is Chile's; what is told is as old as the file, never newer."""
        days = {"publicada_at": "2026-02-09", "cierra_at": "20-02-2026"}
        (tmp_path / "a.jsonl").write_text(line(1, monto=5_000, **days) + line(2))
        context.run(source)
        item, bare = (context.items["folder", f"{number}-1-LE26"] for number in (1, 2))
        assert item.publicada_at == datetime(2026, 2, 9, 3, tzinfo=UTC)
        assert item.cierra_at == datetime(2026, 2, 21, 2, 59, 59, tzinfo=UTC)
        assert (item.whole_days, item.moneda, item.as_of) == (tuple(days), "CLP", context.time)
        assert (bare.whole_days, bare.moneda) == ((), None)

    def test_every_field(self, tmp_path: Path, source: Folder, context: MemorySourceContext) -> None:
        """All fields of an item can be told."""
        reported = {
            "descripcion": "D",
            "organismo": "O",
            "region": " Región del Biobío ",
            "monto": "70.063,50",
            "moneda": "UF",
            "monto_label": "unas 70 mil",
            "rubros": [72141003, "72141000"],
            "publicada_at": "2026-02-09T10:00:00",
            "cierra_at": "2026-02-20T15:00:00-03:00",
            "url": "https://example.org/1",
            "namespace": "mine",
        }
        (tmp_path / "a.jsonl").write_text(line(1, **reported))
        context.run(source)
        item = context.items["mine", "1-1-LE26"]
        assert (item.monto, item.moneda, item.monto_label) == (Decimal("70063.50"), "CLF", "unas 70 mil")
        assert (item.rubros, item.rubro_scheme, item.tipo) == (("72141003", "72141000"), "UNSPSC", "LE")
        assert item.publicada_at == datetime(2026, 2, 9, 13, tzinfo=UTC)
        assert item.cierra_at == datetime(2026, 2, 20, 18, tzinfo=UTC)
        assert (item.region, item.organismo, item.url) == ("Región del Biobío", "O", "https://example.org/1")
        assert (item.estado, item.announces, item.withdrawn) == ("Publicada", True, False)

    @pytest.mark.parametrize(
        ("more", "wanted"),
        [
            ({"estado": "Cerrada"}, (False, False)),
            ({"estado": "Revocada"}, (False, True)),
            ({"withdrawn": True}, (False, True)),
            ({"announces": False}, (False, False)),
            ({"cierra_en_dias": -1}, (False, False)),
            ({"cierra_en_dias": 0.5}, (True, False)),
        ],
    )
    def test_states(
        self,
        tmp_path: Path,
        source: Folder,
        context: MemorySourceContext,
        more: dict[str, object],
        wanted: tuple[bool, bool],
    ) -> None:
        """Only what is open announces; what is revoked is withdrawn."""
        (tmp_path / "a.jsonl").write_text(line(1, **more))
        context.run(source)
        [item] = context.items.values()
        assert (item.announces, item.withdrawn) == wanted

    @pytest.mark.parametrize(
        ("bad", "reason"),
        [
            ("{", "no JSON object"),
            ("[1]", "no JSON object"),
            ('{"nombre": "x"}', "codigo must be text"),
            ('{"codigo": "x"}', "nombre must be text"),
            (json.dumps({"codigo": "x" * 301, "nombre": "x"}), "codigo must be text of 1 to 300"),
            (
                '{"codigo": "x", "nombre": "y", "cierra_at": "mañana", "monto": "mucho"}',
                "cierra_at, monto cannot be read",
            ),
            ('{"codigo": "x", "nombre": "y", "moneda": "pesetas"}', "moneda cannot be read"),
            ('{"codigo": "x", "nombre": "y", "namespace": "a b"}', "namespace must be"),
            (json.dumps({"codigo": "x", "nombre": "y", "descripcion": "z" * 1_000_001}), "longer than 1 MB"),
        ],
    )
    def test_a_bad_line_is_named_and_the_rest_is_read(
        self, tmp_path: Path, source: Folder, context: MemorySourceContext, bad: str, reason: str
    ) -> None:
        """A line that cannot be used is a reject by file and line; the others are told."""
        (tmp_path / "a.jsonl").write_text(line(1) + "\n" + bad + "\n" + line(2))
        context.run(source)
        assert context.codes() == {"1-1-LE26", "2-1-LE26"}
        [reject] = context.rejects.values()
        assert reject.place == "a.jsonl:3"
        assert reason in reject.reason
        assert context.run(source)[-1].outcome == "unchanged"

    def test_a_tender_told_twice_is_one(self, tmp_path: Path, source: Folder, context: MemorySourceContext) -> None:
        """The later line wins where it says something."""
        (tmp_path / "a.jsonl").write_text(line(1, region="Maule", monto=5) + line(1, monto=7))
        [answer] = context.run(source)
        [item] = answer.items
        assert (item.region, item.monto) == ("Maule", Decimal(7))


class TestGrowth:
    """Files grow, are replaced, and go."""

    def test_appended_lines_are_read_alone(self, tmp_path: Path, source: Folder, context: MemorySourceContext) -> None:
        """Only what was appended is told."""
        file = tmp_path / "a.jsonl"
        file.write_text(line(1) + line(2))
        context.run(source)
        with file.open("a") as more:
            more.write(line(3))
        [answer] = context.run(source)
        assert [item.external_id for item in answer.items] == ["3-1-LE26"]

    def test_a_half_written_line_waits(self, tmp_path: Path, source: Folder, context: MemorySourceContext) -> None:
        """A line that is not whole yet is read when it is; its number stays right."""
        file = tmp_path / "a.jsonl"
        whole = line(2)
        file.write_text(line(1) + whole[:10])
        os.utime(file, (context.time.timestamp(), context.time.timestamp()))
        [answer] = context.run(source)
        assert ([item.external_id for item in answer.items], answer.rejects) == (["1-1-LE26"], ())
        file.write_text(line(1) + whole + "x\n")
        context.run(source)
        assert context.codes() == {"1-1-LE26", "2-1-LE26"}
        assert list(context.rejects) == ["a.jsonl:3"]

    def test_a_last_line_without_an_end_counts(
        self, tmp_path: Path, source: Folder, context: MemorySourceContext
    ) -> None:
        """A whole object is taken though its end of line is missing; that end, written later, is no line."""
        file = tmp_path / "a.jsonl"
        file.write_text(line(1).strip())
        context.run(source)
        assert context.codes() == {"1-1-LE26"}
        with file.open("a") as more:
            more.write("\n" + line(2) + "bad\n")
        context.run(source)
        assert context.codes() == {"1-1-LE26", "2-1-LE26"}
        assert list(context.rejects) == ["a.jsonl:3"]

    def test_a_line_left_half_written_is_rejected_in_the_end(
        self, tmp_path: Path, source: Folder, context: MemorySourceContext
    ) -> None:
        """After an hour without a change nobody is going to finish it."""
        file = tmp_path / "a.jsonl"
        file.write_text('{"codigo":')
        os.utime(file, (context.time.timestamp(), context.time.timestamp()))
        assert context.run(source)[-1].rejects == ()
        context.time += timedelta(hours=2)
        context.run(source)
        assert list(context.rejects) == ["a.jsonl:1"]

    @pytest.mark.parametrize("way", ["replaced", "rewritten", "shorter"])
    def test_a_replaced_file_is_read_again(
        self, tmp_path: Path, source: Folder, context: MemorySourceContext, way: str
    ) -> None:
        """A file of the same name with other contents is a new file, and mended lines are resolved."""
        file = tmp_path / "a.jsonl"
        file.write_text(line(1) + "bad\n" + line(2))
        context.run(source)
        assert list(context.rejects) == ["a.jsonl:2"]
        new = {
            "replaced": line(5) + line(6) + line(7),
            "rewritten": line(5) + line(6) + line(7) * 9,
            "shorter": line(5) + line(6),
        }[way]
        if way == "replaced":
            (tmp_path / "new.tmp").write_text(new)
            (tmp_path / "new.tmp").replace(file)
        else:
            file.write_text(new)
        context.run(source)
        assert {"5-1-LE26", "6-1-LE26"} <= context.codes()
        assert not context.rejects

    def test_a_file_that_becomes_readable_is_read(
        self, tmp_path: Path, source: Folder, context: MemorySourceContext, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A file that cannot be read is rejected once, by its name; once it can be read its reject is resolved, and no other's."""
        locked = {"a.jsonl", "b.jsonl"}
        really_open = Path.open

        def refuse(path: Path, *args: Any, **more: Any) -> Any:
            if path.name in locked:
                raise PermissionError(13, "Permission denied", str(path))
            return really_open(path, *args, **more)

        for number, name in enumerate(("a.jsonl", "b.jsonl", "c.jsonl")):
            (tmp_path / name).write_text(line(number))
        monkeypatch.setattr(Path, "open", refuse)
        context.run(source)
        assert (set(context.rejects), context.codes()) == ({"a.jsonl", "b.jsonl"}, {"2-1-LE26"})
        assert [answer.rejects for answer in context.run(source)] == [()], "it is said once"
        locked.remove("a.jsonl")
        context.run(source)
        assert (set(context.rejects), context.codes()) == ({"b.jsonl"}, {"0-1-LE26", "2-1-LE26"})

    def test_a_touched_file_is_not_told_again(
        self, tmp_path: Path, source: Folder, context: MemorySourceContext
    ) -> None:
        """Another time alone is no other contents."""
        file = tmp_path / "a.jsonl"
        file.write_text(line(1))
        context.run(source)
        os.utime(file, (1, 1))
        assert context.run(source)[-1].items == ()

    def test_a_file_that_is_gone_is_forgotten(
        self, tmp_path: Path, source: Folder, context: MemorySourceContext
    ) -> None:
        """The cursor holds only files that are there."""
        (tmp_path / "a.jsonl").write_text(line(1))
        context.run(source)
        (tmp_path / "a.jsonl").unlink()
        context.run(source)
        assert context.cursor == {"files": {}}

    def test_other_files_are_left_alone(self, tmp_path: Path, source: Folder, context: MemorySourceContext) -> None:
        """Hidden files, other kinds, folders and pipes are not read."""
        (tmp_path / ".a.jsonl").write_text(line(1))
        (tmp_path / "a.jsonl.tmp").write_text(line(1))
        (tmp_path / "b.jsonl").mkdir()
        os.mkfifo(tmp_path / "c.jsonl")
        (tmp_path / "d.ndjson").write_text(line(2))
        context.run(source)
        assert context.codes() == {"2-1-LE26"}

    def test_any_number_of_files_is_read(
        self, tmp_path: Path, source: Folder, context: MemorySourceContext, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """However many there are, all are read, those that come later too, and the cursor stays small."""
        patch_bounds(monkeypatch)
        for number in range(25):
            (tmp_path / f"{number:02}.jsonl").write_text(line(number))
        context.run(source)
        assert len(context.items) == 25
        assert context.run(source)[-1].outcome == "unchanged"
        (tmp_path / "00-first-by-name.jsonl").write_text(line(100))
        (tmp_path / "zz-last-by-name.jsonl").write_text(line(101))
        context.run(source)
        assert {"100-1-LE26", "101-1-LE26"} <= context.codes()
        assert len(context.cursor["files"]) <= 3 * 4
        assert not context.rejects

    def test_a_file_with_an_old_date_is_news(
        self, tmp_path: Path, source: Folder, context: MemorySourceContext, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A file that is moved in with the date of years ago is read like any other."""
        patch_bounds(monkeypatch)
        for number in range(9):
            (tmp_path / f"{number}.jsonl").write_text(line(number))
        context.run(source)
        aside = tmp_path.parent / "aside"
        aside.write_text(line(50))
        os.utime(aside, (1_000_000_000, 1_000_000_000))
        aside.rename(tmp_path / "old.jsonl")
        context.run(source)
        assert "50-1-LE26" in context.codes()

    def test_what_appears_behind_the_mark_is_found(
        self, tmp_path: Path, source: Folder, context: MemorySourceContext, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A clock that was set back lets a new file look older than what was handled: the folder is walked again."""
        patch_bounds(monkeypatch)
        for number in range(9):
            (tmp_path / f"{number}.jsonl").write_text(line(number))
        context.run(source)
        monkeypatch.setattr(files, "MAX_TRACKED", 1)
        context.run(source)
        assert context.cursor["passed_count"] > 0
        context.cursor = {**context.cursor, "passed": [2**62, "zzz"]}
        (tmp_path / "late.jsonl").write_text(line(60))
        context.run(source)
        assert "60-1-LE26" in context.codes()

    def test_a_file_that_was_passed_and_grows_is_read_on(
        self, tmp_path: Path, source: Folder, context: MemorySourceContext, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What is appended to a file that is remembered by the mark alone is read, and nothing is told twice."""
        patch_bounds(monkeypatch)
        for number in range(9):
            (tmp_path / f"{number}.jsonl").write_text(line(number))
        context.run(source)
        with (tmp_path / "0.jsonl").open("a") as file:
            file.write(line(70))
        context.run(source)
        assert "70-1-LE26" in context.codes()

    def test_a_file_of_one_moment_with_the_mark_is_read(
        self, tmp_path: Path, source: Folder, context: MemorySourceContext
    ) -> None:
        """Of two files with one change time the mark names one; the other is read, though the first is gone since."""
        (tmp_path / "b.jsonl").write_text(line(1))
        changed_ns = (tmp_path / "b.jsonl").stat().st_ctime_ns
        context.cursor = {"files": {}, "passed": [changed_ns, "a.jsonl"], "passed_count": 1}
        context.run(source)
        assert context.codes() == {"1-1-LE26"}

    def test_what_may_share_its_moment_with_a_file_to_come_is_kept(
        self, tmp_path: Path, source: Folder, context: MemorySourceContext, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The mark does not pass a fresh file, unless there are far too many of them."""
        patch_bounds(monkeypatch)
        monkeypatch.setattr(files, "_GRANULARITY_NS", 3_600 * 10**9)
        for number in range(13):
            (tmp_path / f"{number}.jsonl").write_text(line(number))
            context.run(source)
            if number < 11:
                assert (len(context.cursor["files"]), "passed" in context.cursor) == (number + 1, False)
        assert (len(context.cursor["files"]), context.cursor["passed_count"]) == (11, 2)

    def test_the_mark_waits_for_a_file_that_is_not_read_to_its_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is remembered, and so are those behind it, however many they are."""
        patch_bounds(monkeypatch)
        entries = {f"{number}.jsonl": {"changed": number} for number in range(9)}
        entries["2.jsonl"] |= {"unfinished": True}
        cursor = files.Look(entries, [], {}, None, 0, more=False).cursor()
        assert (cursor["passed"], cursor["passed_count"]) == ([1, "1.jsonl"], 2)
        assert list(cursor["files"]) == [f"{number}.jsonl" for number in range(2, 9)]

    def test_handled_files_are_moved(self, tmp_path: Path, context: MemorySourceContext) -> None:
        """With FOLDER_SOURCE_DONE_DIR a file leaves once it was read and kept, never over another; rejects stay open."""
        drop, done = tmp_path / "drop", tmp_path / "done"
        drop.mkdir()
        done.mkdir()
        (done / "a.jsonl").write_text("an earlier one")
        source = Folder(settings_for(folder_source_dir=drop, folder_source_done_dir=done))
        (drop / "a.jsonl").write_text(line(1) + "{bad\n")
        (drop / "fresh.jsonl").write_text(line(2))
        (drop / "mended.jsonl").write_text("{bad\n")
        for name in ("a.jsonl", "mended.jsonl"):
            os.utime(drop / name, (1_700_000_000, 1_700_000_000))
        context.run(source)
        assert len(list(drop.iterdir())) == 3, "not before it was kept"
        context.run(source)
        assert [path.name for path in drop.iterdir()] == ["fresh.jsonl"], "and not while somebody may still write it"
        assert sorted(path.name for path in done.iterdir()) == ["a.jsonl", "a.jsonl.1", "mended.jsonl"]
        assert context.codes() == {"1-1-LE26", "2-1-LE26"}
        (done / "mended.jsonl").write_text(line(3))
        context.due.add("mended.jsonl:1")
        context.run(source)
        assert "3-1-LE26" in context.codes(), "what was mended is read where it lies now"
        (done / "a.jsonl.1").write_text(line(1) + line(4))
        context.due.add("a.jsonl:2")
        context.run(source)
        assert "4-1-LE26" in context.codes(), "though an earlier file has its name"

    def test_a_file_is_found_without_a_walk(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each reject that is tried again asks for its file by its name, however many were handled before."""
        (tmp_path / "a.jsonl").write_text(line(1))
        monkeypatch.setattr(os, "scandir", None)
        monkeypatch.setattr(os, "listdir", None)
        drop = files.DropFolder(tmp_path / "drop", (".jsonl",), tmp_path)
        assert drop.find("gone.jsonl") is None
        assert drop.find("a.jsonl") is not None

    def test_a_name_that_is_no_utf8(self, tmp_path: Path, source: Folder, context: MemorySourceContext) -> None:
        """A Latin-1 file name is read like any other; cursor and rejects hold it written out."""
        with open(os.fsencode(tmp_path) + b"/a\xf1o.jsonl", "w") as file:  # noqa: PTH123 a path of bytes
            file.write(line(1) + "{bad\n")
        context.run(source)
        assert context.codes() == {"1-1-LE26"}
        assert list(context.rejects) == ["a\\xf1o.jsonl:2"]
        json.dumps(context.cursor).encode()
        context.due.add("a\\xf1o.jsonl:2")
        context.run(source)
        assert "no JSON object" in context.rejects["a\\xf1o.jsonl:2"].reason


@pytest.mark.parametrize("seconds", [10**13, -(10**13)])
def test_a_file_time_beyond_the_calendar_stops_nothing(
    tmp_path: Path,
    source: Folder,
    context: MemorySourceContext,
    monkeypatch: pytest.MonkeyPatch,
    seconds: int,
) -> None:
    """Some file systems hold times of the year 318857; such a file is read, and so are the others."""
    (tmp_path / "a.jsonl").write_text(line(1))
    walk = files.DropFolder._walk

    def far_away(folder: files.DropFolder) -> Iterator[files.DroppedFile]:
        for each in walk(folder):
            yield replace(each, stamp=(*each.stamp[:2], seconds * 10**9))

    monkeypatch.setattr(files.DropFolder, "_walk", far_away)
    context.run(source)
    assert context.codes() == {"1-1-LE26"}


@pytest.mark.parametrize("days", [99999, -999999, 999999, "999999"])
def test_a_date_beyond_the_calendar_is_a_reject(
    tmp_path: Path, source: Folder, context: MemorySourceContext, days: object
) -> None:
    """A closing in 99999 days, or 999999 days ago, rejects its line and no other."""
    (tmp_path / "a.jsonl").write_text(line(1, cierra_en_dias=days) + line(2))
    context.run(source)
    assert context.codes() == {"2-1-LE26"}
    assert "cierra_at cannot be read" in context.rejects["a.jsonl:1"].reason


def patch_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a handful of files be many, and any change time be old enough."""
    monkeypatch.setattr(files, "MAX_TRACKED", 4)
    monkeypatch.setattr(files, "MOST_AT_ONCE", 3)
    monkeypatch.setattr(files, "_GRANULARITY_NS", 0)


def test_a_rejected_line_can_be_run_again(tmp_path: Path, source: Folder, context: MemorySourceContext) -> None:
    """When an operator makes a reject due, its line is read again."""
    file = tmp_path / "a.jsonl"
    good = line(1)
    file.write_text("x" * (len(good) - 1) + "\n")
    context.run(source)
    context.due = {"a.jsonl:1"}
    context.run(source)
    assert list(context.rejects) == ["a.jsonl:1"]
    with file.open("r+") as mended:
        mended.write(good)
    stat = file.stat()
    entry = context.cursor["files"]["a.jsonl"]
    context.cursor = {"files": {"a.jsonl": entry | {"stamp": [stat.st_ino, stat.st_size, stat.st_mtime_ns]}}}
    context.due = {"a.jsonl:1"}
    context.run(source)
    assert context.codes() == {"1-1-LE26"}
    assert not context.rejects


def test_a_file_with_a_colon_in_its_name_is_no_line(
    tmp_path: Path, source: Folder, context: MemorySourceContext
) -> None:
    """A file that as a whole was rejected has no number behind its last colon, and stays rejected as what it was."""
    (tmp_path / "a.jsonl").write_text(line(1))
    context.rejects = {"2026:b.jsonl": reject("2026:b.jsonl", "it cannot be read")}
    context.due = {"2026:b.jsonl"}
    context.run(source)
    assert context.codes() == {"1-1-LE26"}
    assert context.rejects["2026:b.jsonl"].reason == "it cannot be read"


def test_a_line_that_is_too_long_is_run_again_in_bounded_memory(
    tmp_path: Path, source: Folder, context: MemorySourceContext
) -> None:
    """Neither a long line itself nor one in front of the line that is read again is held whole."""
    (tmp_path / "a.jsonl").write_bytes(b"x" * 20_000_000 + b"\n{bad\n")
    context.run(source)
    context.due = {"a.jsonl:1", "a.jsonl:2"}
    tracemalloc.start()
    try:
        context.run(source)
        assert tracemalloc.get_traced_memory()[1] < 15_000_000
    finally:
        tracemalloc.stop()
    assert set(context.rejects) == {"a.jsonl:1", "a.jsonl:2"}


def test_a_folder_of_ones_own_takes_stock_first(source: Folder) -> None:
    """What lies in a folder on the first day is old; the bundled sample is there to be shown."""
    assert source.seeds_silently


class TestAnswersThatWereSilentlyWrong:
    """What was dropped later counts as later, what was edited is read, and what says little is no mistake."""

    def test_a_revocation_with_an_older_date(
        self, tmp_path: Path, source: Folder, context: MemorySourceContext
    ) -> None:
        """Copied in with the date it had elsewhere, a file is as new as its coming here."""
        context.time = datetime.now(UTC) + timedelta(minutes=1)
        (tmp_path / "a.jsonl").write_text(line(1))
        context.run(source)
        (tmp_path / "b.jsonl").write_text(line(1, estado="Revocada"))
        os.utime(tmp_path / "b.jsonl", (1_000_000_000, 1_000_000_000))
        context.run(source)
        [item] = context.items.values()
        assert item.withdrawn

    def test_a_line_edited_in_place(self, tmp_path: Path, source: Folder, context: MemorySourceContext) -> None:
        """A file of the same size that was written again is read again, also far from its ends."""
        file = tmp_path / "a.jsonl"
        text = "".join(line(number, descripcion="x" * 400) for number in range(1, 12))
        file.write_text(text)
        context.run(source)
        with file.open("r+") as opened:  # in place: the same file, the same size
            opened.write(text.replace("Compra 6", "Compra X"))
        os.utime(file, ns=(1, file.stat().st_mtime_ns + 5_000_000_000))
        context.run(source)
        assert context.items["folder", "6-1-LE26"].nombre == "Compra X"

    @pytest.mark.parametrize("none", [0, "0", 0.0, "0,00"])
    def test_an_amount_of_nothing(
        self, tmp_path: Path, source: Folder, context: MemorySourceContext, none: object
    ) -> None:
        """An amount of zero is none told; the line is good."""
        (tmp_path / "a.jsonl").write_text(line(1, monto=none))
        [answer] = context.run(source)
        assert (answer.rejects, answer.items[0].monto, answer.items[0].moneda) == ((), None, None)

    def test_a_link_that_is_a_script(self, tmp_path: Path, source: Folder, context: MemorySourceContext) -> None:
        """Only an address of the web is kept as a link."""
        (tmp_path / "a.jsonl").write_text(line(1, url="javascript:alert(1)") + line(2, url="https://example.com/2"))
        context.run(source)
        assert [item.url for item in context.items.values()] == [None, "https://example.com/2"]
