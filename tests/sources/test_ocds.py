"""OCDS: real packages of several countries, pages, errors inside 200, files."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from fakes.server import Answer, Asked, FakeServer
from relevo.core.items import Item
from relevo.sources import files, text
from relevo.sources.ocds import MAX_STUCK, Ocds
from sources.source_context import FIXTURES, MemorySourceContext, settings_for

OCDS = FIXTURES / "ocds"
COMPILED = {"tag": ["compiled"], "date": "2026-02-01T10:00:00Z", "tender": {"title": "Works", "status": "active"}}


def read(tmp_path: Path, name: str, now: datetime = datetime(2010, 3, 20, tzinfo=UTC)) -> Item:
    """Read one real file through the adapter."""
    (tmp_path / name).write_bytes((OCDS / name).read_bytes())
    [answer] = MemorySourceContext(now).run(Ocds(settings_for(ocds_folder=tmp_path)))
    [item] = answer.items
    return item


def release(
    number: int, *, day: int = 1, title: str = "Works", status: str = "active", tag: str = "tender"
) -> dict[str, Any]:
    """Make a release of a fictional tender."""
    return {
        "ocid": f"ocds-abc123-{number}",
        "id": f"{number}-{day}-{tag}",
        "date": f"2026-02-{day:02}T10:00:00Z",
        "tag": [tag],
        "tender": {"id": str(number), "title": title, "status": status},
    }


class Pages(FakeServer):
    """Documents by path."""

    def __init__(self) -> None:
        super().__init__()
        self.pages: dict[str, Any] = {}
        self.headers: dict[str, str] = {}

    def answer(self, asked: Asked) -> Answer:
        """Serve a page, 304 if the client has it."""
        if self.headers.get("ETag") and asked.headers.get("if-none-match") == self.headers["ETag"]:
            return Answer(304)
        page = self.pages.get(asked.path)
        if isinstance(page, Answer):
            return page
        return Answer(404, b"{}") if page is None else Answer(200, json.dumps(page).encode(), self.headers)

    def paths(self) -> list[str]:
        """Return what was asked for, and forget it."""
        found = [asked.path for asked in self.asked]
        self.asked.clear()
        return found


@pytest.fixture
def pages() -> Iterator[Pages]:
    """A publisher."""
    with Pages() as server:
        yield server


@pytest.fixture
def source(pages: Pages) -> Ocds:
    """The adapter, pointed at it."""
    return Ocds(settings_for(ocds_url=f"{pages.url}/1"))


class TestRealPackages:
    """What publishers really said."""

    def test_chile_priced(self, tmp_path: Path) -> None:
        """Chile's tender has the register's own name and namespace, and is told by its newest release."""
        item = read(tmp_path, "chile_tender_1211839-44-LE26_priced_PARTIAL_first4releases.json")
        assert (item.namespace, item.external_id, item.tipo) == ("chilecompra", "1211839-44-LE26", "LE")
        assert (item.monto, item.moneda) == (Decimal(50_000_000), "CLP")
        assert (item.rubros, item.rubro_scheme) == (("47121602",), "UNSPSC")
        assert (item.region, item.organismo) == ("Región Metropolitana de Santiago", "CORP MUNIC EDUC SALUD Y ATENCION")
        assert (item.estado, item.announces) == ("Cerrada", False)

    def test_chile_unpriced(self, tmp_path: Path) -> None:
        """Blanks are trimmed, and what Chile calls UTC is its local time."""
        name = "chile_tender_5839-3-LP26_unpriced.json"
        item = read(tmp_path, name, datetime(2026, 7, 11, tzinfo=UTC))
        assert item.nombre.endswith("RECOLECCION DE ORINA")
        assert item.region == "Región de Valparaíso"
        assert (item.monto, item.estado, item.announces) == (None, "Publicada", True)
        assert item.cierra_at == datetime(2026, 7, 30, 19, 30, tzinfo=UTC)

    def test_a_package_by_the_book(self, tmp_path: Path) -> None:
        """The standard's own example: CPV keeps its scheme, codes lose the tail of a number."""
        item = read(tmp_path, "fictional_release_package_1.1_tender.json")
        assert (item.namespace, item.external_id) == ("ocds-213czf", "ocds-213czf-000-00001")
        assert (item.nombre, item.organismo) == ("Planned cycle lane improvements", "London Borough of Barnet")
        assert (item.monto, item.moneda) == (Decimal(1_100_000), "GBP")
        assert (item.rubros, item.rubro_scheme) == (("45233130", "45233162-2"), "CPV")
        assert (item.region, item.tipo, item.announces) == ("London", "open", True)
        assert item.cierra_at == datetime(2010, 4, 1, 18, tzinfo=UTC)
        assert item.url == "http://example.com/tender-notices/ocds-213czf-000-00001-01.html"

    def test_a_compiled_release(self, tmp_path: Path) -> None:
        """Paraguay's completed tender announces nothing; its supplier's region is not its buyer's."""
        item = read(tmp_path, "paraguay_dncp_release_package_1.1_193399.json")
        assert (item.namespace, item.nombre, item.estado) == ("ocds-03ad3f", "Adquisición de Scanner", "complete")
        assert (item.monto, item.moneda, item.region, item.announces) == (None, "PYG", None, False)
        assert item.publicada_at == datetime(2010, 3, 15, 9, tzinfo=UTC)

    def test_a_bare_release(self, tmp_path: Path) -> None:
        """A release without a package counts too."""
        item = read(tmp_path, "uk_contracts_finder_release_2016_BARE.json")
        assert item.external_id == "ocds-b5fd17-2c435b84-adc8-11e6-9901-0019b9f3037b"
        assert (item.monto, item.moneda, item.rubros) == (Decimal(17_788_589), "GBP", ("80000000",))
        assert (item.estado, item.announces, item.tipo) == ("unsuccessful", False, "Open procedure")

    @pytest.mark.parametrize("name", [path.name for path in sorted(OCDS.iterdir()) if "index" not in path.name])
    def test_no_people_are_kept(self, tmp_path: Path, name: str) -> None:
        """Contact points stay out."""
        assert "REDACTED" not in repr(read(tmp_path, name))

    def test_the_namespace_can_be_chosen(self, tmp_path: Path) -> None:
        """OCDS_NAMESPACE wins over the ocid's prefix."""
        (tmp_path / "a.json").write_text(json.dumps(release(1)))
        context = MemorySourceContext()
        context.run(Ocds(settings_for(ocds_folder=tmp_path, ocds_namespace="mine")))
        assert set(context.items) == {("mine", "ocds-abc123-1")}


class TestForms:
    """Every form a release comes in."""

    @pytest.mark.parametrize(
        "document",
        [
            {"releases": [release(1)]},
            {"records": [{"ocid": "ocds-abc123-1", "releases": [release(1)]}]},
            {"records": [{"ocid": "ocds-abc123-1", "releases": [{"url": "u"}], "compiledRelease": release(1)}]},
            {"records": [{"ocid": "ocds-abc123-1", "compiledRelease": COMPILED}]},
            release(1),
            [release(1)],
            [{"releases": [release(1)]}],
            {"results": [release(1)]},
            {"results": [{"releases": [release(1)]}]},
            {"data": [release(1)]},
        ],
    )  # fmt: skip
    def test_each_is_found(self, pages: Pages, source: Ocds, context: MemorySourceContext, document: object) -> None:
        """Release packages, record packages, compiled, bare and listed releases tell the same tender."""
        pages.pages["/1"] = document
        context.run(source)
        [item] = context.items.values()
        assert (item.external_id, item.nombre, item.announces) == ("ocds-abc123-1", "Works", True)

    def test_one_item_per_ocid_told_by_the_newest(
        self, pages: Pages, source: Ocds, context: MemorySourceContext
    ) -> None:
        """Several releases of a tender are one item; order in the file does not matter."""
        pages.pages["/1"] = {"releases": [release(1, day=3, title="Third"), release(1, day=1, title="First")]}
        [answer] = context.run(source)
        assert [item.nombre for item in answer.items] == ["Third"]

    def test_an_older_release_does_not_undo_a_newer(
        self, pages: Pages, source: Ocds, context: MemorySourceContext
    ) -> None:
        """A feed that shows the newest first tells old releases later: they change nothing."""
        pages.pages["/1"] = {"releases": [release(1, day=5, status="complete", tag="award")], "links": {"next": "/2"}}
        pages.pages["/2"] = {"releases": [release(1, day=1)]}
        for _ in range(2):
            context.run(source)
        [item] = context.items.values()
        assert (item.estado, item.announces) == ("complete", False)

    def test_planning_is_not_told(self, pages: Pages, source: Ocds, context: MemorySourceContext) -> None:
        """Before the release tagged tender there is nothing to announce; then there is."""
        pages.pages["/1"] = {"releases": [release(1, tag="planning", status="planned")]}
        assert context.run(source)[0].items == ()
        pages.pages["/1"] = {"releases": [release(1, day=2)]}
        [item] = context.run(source)[0].items
        assert item.announces

    @pytest.mark.parametrize(
        ("status", "tag"), [("cancelled", "tenderUpdate"), ("withdrawn", "tender"), ("active", "tenderCancellation")]
    )
    def test_cancelled_ones_are_withdrawn(
        self, pages: Pages, source: Ocds, context: MemorySourceContext, status: str, tag: str
    ) -> None:
        """A cancelled tender cancels what has not gone out."""
        pages.pages["/1"] = {"releases": [release(1)]}
        context.run(source)
        pages.pages["/1"] = {"releases": [release(1, day=2, status=status, tag=tag)]}
        [item] = context.run(source)[0].items
        assert (item.withdrawn, item.announces) == (True, False)

    def test_what_is_over_announces_nothing(self, pages: Pages, source: Ocds, context: MemorySourceContext) -> None:
        """An active tender past its end is not open."""
        over = release(1)
        over["tender"]["tenderPeriod"] = {"endDate": "2026-02-08T00:00:00Z"}
        pages.pages["/1"] = {"releases": [over]}
        [item] = context.run(source)[0].items
        assert not item.announces

    def test_two_schemes(self, pages: Pages, source: Ocds, context: MemorySourceContext) -> None:
        """Codes of two schemes are not mixed: UNSPSC stays where there is any."""
        both = release(1)
        kinds = [{"scheme": "CPV", "id": "45000000"}, {"scheme": "UNSPSC", "id": "72141003"}]
        both["tender"]["items"] = [{"classification": kinds[0], "additionalClassifications": kinds[1:]}]
        pages.pages["/1"] = {"releases": [both]}
        [item] = context.run(source)[0].items
        assert (item.rubros, item.rubro_scheme) == (("72141003",), "UNSPSC")


class TestPages:
    """A publisher's pages."""

    @pytest.mark.parametrize("link", [{"links": {"next": "/2"}}, {"next_url": "/2"}, {"next": "/2"}])
    def test_the_next_page_is_followed(
        self, pages: Pages, source: Ocds, context: MemorySourceContext, link: dict[str, Any]
    ) -> None:
        """Whatever a link to the next page is called, it is followed, relative or not."""
        pages.pages["/1"] = {"releases": [release(1)]} | link
        pages.pages["/2"] = {"releases": [release(2)]}
        context.run(source)
        assert context.codes() == {"ocds-abc123-1", "ocds-abc123-2"}

    def test_newest_first_stops_where_nothing_is_new(
        self, pages: Pages, source: Ocds, context: MemorySourceContext
    ) -> None:
        """Once all is known, one page is enough to know it."""
        for n in range(1, 9):
            newest_first = [release(2 * (9 - n), day=20 - n), release(2 * (9 - n) - 1, day=19 - n)]
            pages.pages[f"/{n}"] = {"releases": newest_first} | ({"links": {"next": f"/{n + 1}"}} if n < 8 else {})
        context.run(source)
        assert len(context.items) == 16
        assert pages.paths() == [f"/{n}" for n in range(1, 9)]
        assert context.run(source)[-1].outcome == "unchanged"
        assert pages.paths() == ["/1"]

    def test_oldest_first_goes_on_at_the_end(self, pages: Pages, source: Ocds, context: MemorySourceContext) -> None:
        """A feed that grows at its end is read from its last page on."""
        for n in range(1, 4):
            pages.pages[f"/{n}"] = {"releases": [release(2 * n, day=2 * n), release(2 * n + 1, day=2 * n + 1)]}
            pages.pages[f"/{n}"] |= {"links": {"next": f"/{n + 1}"}} if n < 3 else {}
        context.run(source)
        pages.paths()
        pages.pages["/3"]["links"] = {"next": "/4"}
        pages.pages["/4"] = {"releases": [release(90, day=20), release(91, day=21)]}
        context.run(source)
        assert pages.paths() == ["/3", "/4"]
        assert len(context.items) == 8

    def test_unchanged(self, pages: Pages, source: Ocds, context: MemorySourceContext) -> None:
        """A publisher who knows ETags is asked with them, and 304 is unchanged."""
        pages.headers = {"ETag": '"v1"', "Last-Modified": "Mon, 09 Feb 2026 12:00:00 GMT"}
        pages.pages["/1"] = {"releases": [release(1)]}
        context.run(source)
        [answer] = context.run(source)
        assert answer.outcome == "unchanged"
        assert pages.asked[-1].headers["if-modified-since"] == "Mon, 09 Feb 2026 12:00:00 GMT"
        pages.headers = {"ETag": '"v2"'}
        pages.pages["/1"] = {"releases": [release(2)]}
        context.run(source)
        assert len(context.items) == 2

    def test_pages_that_lead_in_a_circle(self, pages: Pages, source: Ocds, context: MemorySourceContext) -> None:
        """A page that names itself as the next one ends the pass."""
        pages.pages["/1"] = {"releases": [release(1)], "links": {"next": "/1"}}
        assert len(context.run(source)) == 1

    def test_trouble_in_the_middle_goes_on_there(
        self, pages: Pages, source: Ocds, context: MemorySourceContext
    ) -> None:
        """What was read before a page that fails is kept, and the pass goes on with that page."""
        pages.pages["/1"] = {"releases": [release(1)], "links": {"next": "/2"}}
        pages.pages["/2"] = Answer(503, b"")
        assert [answer.outcome for answer in context.run(source)] == ["ok", "unavailable"]
        pages.paths()
        pages.pages["/2"] = {"releases": [release(2)]}
        context.run(source)
        assert pages.paths() == ["/2"]
        assert len(context.items) == 2

    def test_a_page_that_is_gone_does_not_block_for_ever(
        self, pages: Pages, source: Ocds, context: MemorySourceContext
    ) -> None:
        """After a few failures the pass begins again."""
        pages.pages["/1"] = {"releases": [release(1)], "links": {"next": "/2"}}
        context.run(source)
        for _ in range(MAX_STUCK):
            context.run(source)
        pages.pages["/1"] = {"releases": [release(3)]}
        context.run(source)
        assert "ocds-abc123-3" in context.codes()

    @pytest.mark.parametrize("name", ["ocds_http200_status404.json", "ocds_http200_status500.json"])
    def test_errors_inside_200_are_no_data(
        self, pages: Pages, source: Ocds, context: MemorySourceContext, name: str
    ) -> None:
        """An error that comes as an answer is unavailable, with its words."""
        pages.pages["/1"] = Answer(200, (FIXTURES / "errors" / name).read_bytes())
        [answer] = context.run(source)
        assert answer.outcome == "unavailable"
        assert answer.detail.startswith("it answers ")

    @pytest.mark.parametrize(("answer", "outcome"), [
        (Answer(503, b""), "unavailable"), (Answer(200, b"<html>"), "unavailable"), (Answer(200, b""), "unavailable"),
        (Answer(403, b""), "rejected"), (Answer(401, b""), "rejected"), (Answer(429, b""), "unavailable"),
    ])  # fmt: skip
    def test_other_ways_to_say_no(
        self, pages: Pages, source: Ocds, context: MemorySourceContext, answer: Answer, outcome: str
    ) -> None:
        """What is no package is never an empty one."""
        pages.pages["/1"] = answer
        assert context.run(source)[0].outcome == outcome

    def test_a_document_without_releases_is_rejected_once(
        self, pages: Pages, source: Ocds, context: MemorySourceContext
    ) -> None:
        """JSON that holds no release is kept as a reject, told once, and resolved when it holds one."""
        pages.pages["/1"] = {"hello": "world"}
        assert [len(context.run(source)[0].rejects) for _ in range(2)] == [1, 0]
        pages.pages["/1"] = {"releases": [release(1)]}
        context.run(source)
        assert not context.rejects

    def test_an_empty_package_is_nothing_new(self, pages: Pages, source: Ocds, context: MemorySourceContext) -> None:
        """A package that holds no release today is fine."""
        pages.pages["/1"] = {"releases": []}
        [answer] = context.run(source)
        assert (answer.outcome, answer.rejects) == ("unchanged", ())

    def test_keys_in_the_address_are_not_repeated(self, pages: Pages, context: MemorySourceContext) -> None:
        """A reject names its page without the query."""
        pages.pages["/1"] = {"hello": "world"}
        [answer] = context.run(Ocds(settings_for(ocds_url=f"{pages.url}/1?key=hunter2")))
        assert "hunter2" not in repr(answer.rejects)


class TestChilesIndex:
    """An index that only names packages."""

    def index(self, pages: Pages) -> dict[str, Any]:
        """Serve Chile's real index, its links turned to this server, and two of the packages."""
        document = json.loads((OCDS / "chile_index_2026-07.json").read_text(encoding="utf-8"))
        for entry in document["data"]:
            entry["urlTender"] = f"{pages.url}/tender/{entry['ocid'][12:]}"
            package = {"releases": [release(1) | {"ocid": entry["ocid"]}]}
            pages.pages[f"/tender/{entry['ocid'][12:]}"] = package
        pages.pages["/1"] = document
        return document  # type: ignore[no-any-return]

    def test_its_packages_are_fetched_once(self, pages: Pages, source: Ocds, context: MemorySourceContext) -> None:
        """Each tender the index names is fetched, and only once."""
        self.index(pages)
        context.run(source)
        assert len(context.items) == 10
        assert ("chilecompra", "5839-3-LP26") in context.items
        assert len(pages.paths()) == 11
        context.run(source)
        assert pages.paths() == ["/1"]

    def test_one_that_fails_is_retried_when_due(self, pages: Pages, source: Ocds, context: MemorySourceContext) -> None:
        """A package that fails is recorded and does not stop the rest."""
        self.index(pages)
        good = pages.pages["/tender/5839-3-LP26"]
        pages.pages["/tender/5839-3-LP26"] = Answer(200, b'{"status": 500, "detail": "Error"}')
        for _ in range(2):
            context.run(source)
        assert len(context.items) == 9
        [reject] = context.rejects.values()
        assert reject.retry
        pages.pages["/tender/5839-3-LP26"] = good
        context.due = set(context.rejects)
        context.run(source)
        assert len(context.items) == 10
        assert not context.rejects


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

    def test_lines(self, tmp_path: Path, context: MemorySourceContext) -> None:
        """JSON lines hold one release or package each."""
        (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(release(n)) for n in range(1, 4)))
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


def test_time_passes(pages: Pages, source: Ocds, context: MemorySourceContext) -> None:
    """A tender that is told again unchanged after it closed is no news."""
    open_one = release(1)
    open_one["tender"]["tenderPeriod"] = {"endDate": "2026-02-11T00:00:00Z"}
    pages.pages["/1"] = {"releases": [open_one]}
    context.run(source)
    context.time += timedelta(days=9)
    assert context.run(source)[0].outcome == "unchanged"


class TestNothingIsDroppedInSilence:
    """What cannot be used is a reject that names its place."""

    def test_releases_without_an_ocid_or_a_tender(
        self, pages: Pages, source: Ocds, context: MemorySourceContext
    ) -> None:
        """A release without a usable ocid, with a tender that is no object, or that is none, is rejected alone."""
        odd = [release(1), {"id": "2", "tender": {"title": "x"}}, {"ocid": "ocds-abc123-3", "tender": "x"}, "text", {}]
        pages.pages["/1"] = {"releases": odd}
        context.run(source)
        assert context.codes() == {"ocds-abc123-1"}
        reasons = sorted(reject.reason for reject in context.rejects.values())
        assert reasons == [
            "a release without an ocid",
            "a release without an ocid",
            "it is no JSON object",
            "its tender is no object",
        ]
        pages.pages["/1"] = {"releases": [release(1), release(2), release(3)]}
        context.run(source)
        assert context.rejects == {}, "mended"

    def test_broken_lines(self, tmp_path: Path, context: MemorySourceContext) -> None:
        """A broken line of a .jsonl file is rejected by its number; the others are read."""
        lines = [json.dumps(release(1)), "{broken", json.dumps(release(2))]
        (tmp_path / "a.jsonl").write_text("\n".join(lines))
        context.run(Ocds(settings_for(ocds_folder=tmp_path)))
        assert context.codes() == {"ocds-abc123-1", "ocds-abc123-2"}
        assert {place: reject.reason for place, reject in context.rejects.items()} == {
            "a.jsonl#2": "it is no JSON object"
        }

    def test_many_are_summed_up(self, pages: Pages, source: Ocds, context: MemorySourceContext) -> None:
        """A page full of nonsense makes a bounded number of rejects, the last of which says how many more."""
        pages.pages["/1"] = {"releases": [{"id": str(number), "tender": {}} for number in range(300)]}
        context.run(source)
        assert len(context.rejects) == 50
        [summed] = [each.reason for place, each in context.rejects.items() if place.endswith("#more")]
        assert summed.startswith("251 more could not be used")

    def test_a_link_that_is_no_address(self, pages: Pages, source: Ocds, context: MemorySourceContext) -> None:
        """A broken link to the next page is a reject; the page itself is read, and the pass is not whole."""
        pages.pages["/1"] = {"releases": [release(1)], "links": {"next": "http://[bad"}}
        answers = context.run(source)
        assert context.codes() == {"ocds-abc123-1"}
        assert (answers[-1].outcome, answers[-1].more, answers[-1].incomplete) == ("ok", False, True)
        assert "no address" in context.rejects[f"{pages.url}/1#next"].reason
        assert context.run(source)[-1].outcome in ("ok", "unchanged")

    def test_a_bare_closing_day_ends_at_its_end(self, pages: Pages, source: Ocds, context: MemorySourceContext) -> None:
        """A closing without a time is the last second of that day."""
        reported = release(1)
        reported["tender"]["tenderPeriod"] = {"endDate": "2026-02-09"}
        pages.pages["/1"] = {"releases": [reported]}
        context.run(source)
        [item] = context.items.values()
        assert (item.cierra_at, item.announces) == (datetime(2026, 2, 9, 23, 59, 59, tzinfo=UTC), True)

    @pytest.mark.parametrize("closes", ["next Friday", 17, {"date": "2026-03-01"}, "9999-12-31"])
    def test_a_closing_that_cannot_be_read(
        self, pages: Pages, source: Ocds, context: MemorySourceContext, closes: object
    ) -> None:
        """It is no tender without a deadline: it is rejected by its ocid."""
        reported = release(1)
        reported["tender"]["tenderPeriod"] = {"endDate": closes}
        pages.pages["/1"] = {"releases": [reported, release(2)]}
        context.run(source)
        assert context.codes() == {"ocds-abc123-2"}
        [reject] = context.rejects.values()
        assert (reject.external_id, "endDate" in reject.reason) == ("ocds-abc123-1", True)

    def test_colombias_codes(self, pages: Pages, source: Ocds, context: MemorySourceContext) -> None:
        """Where no item is classified, an id that is a UNSPSC code is one."""
        reported = release(1)
        reported["tender"]["items"] = [{"id": "72141003"}, {"id": "V1.80111600"}, {"id": "7"}]
        pages.pages["/1"] = {"releases": [reported]}
        context.run(source)
        [item] = context.items.values()
        assert (item.rubros, item.rubro_scheme) == (("72141003", "80111600"), "UNSPSC")

    def test_long_ocids_stay_apart(self, pages: Pages, source: Ocds, context: MemorySourceContext) -> None:
        """Two ocids that differ only after hundreds of characters are two tenders, each with a name that fits."""
        pages.pages["/1"] = {"releases": [release(1) | {"ocid": f"ocds-abc123-{'x' * 400}{end}"} for end in "ab"]}
        context.run(source)
        assert len(context.items) == 2
        assert {len(external_id) for _, external_id in context.items} == {300}


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


def test_older_news_of_another_teller_fill_blanks_only(
    pages: Pages, source: Ocds, context: MemorySourceContext
) -> None:
    """A tender that somebody revoked yesterday is not revived by a release of last week; what was blank is filled."""
    stored = Item(
        "ocds-abc123",
        "ocds-abc123-1",
        "Works",
        "api:1",
        estado="Revocada",
        announces=False,
        withdrawn=True,
        as_of=datetime(2026, 2, 8, tzinfo=UTC),
    )
    context.items["ocds-abc123", "ocds-abc123-1"] = stored
    reported = release(1, day=1)
    reported["tender"] |= {"description": "All of it", "tenderPeriod": {"endDate": "2026-03-01T12:00:00Z"}}
    pages.pages["/1"] = {"releases": [reported]}
    context.run(source)
    [item] = context.items.values()
    assert (item.estado, item.announces, item.withdrawn, item.as_of) == ("Revocada", False, True, stored.as_of)
    assert (item.descripcion, item.cierra_at) == ("All of it", datetime(2026, 3, 1, 12, tzinfo=UTC))
    pages.pages["/1"] = {"releases": [release(1, day=9)]}
    context.run(source)
    [item] = context.items.values()
    assert (item.estado, item.announces, item.withdrawn) == ("active", True, False), "what is newer says otherwise"


class TestAnswersThatWereSilentlyWrong:
    """What a publisher leaves out, dates ahead or writes in an odd form neither undoes what is known nor vanishes."""

    def tell(self, pages: Pages, source: Ocds, context: MemorySourceContext, *releases: dict[str, Any]) -> Item:
        """Publish these releases, read them, and return the one tender as it is stored then."""
        pages.pages["/1"] = {"releases": list(releases)}
        context.run(source)
        [item] = context.items.values()
        return item

    @pytest.mark.parametrize("later", [{"title": None, "status": "active"}, {}], ids=["no title", "a bare award"])
    def test_an_update_without_a_title(
        self, pages: Pages, source: Ocds, context: MemorySourceContext, later: dict[str, Any]
    ) -> None:
        """It leaves the name as it is: the ocid is none."""
        self.tell(pages, source, context, release(1))
        update = release(1, day=2, tag="tenderUpdate" if later else "award") | {"tender": {"id": "1", **later}}
        assert self.tell(pages, source, context, update).nombre == "Works"

    def test_a_date_ahead_does_not_make_deaf(self, pages: Pages, source: Ocds, context: MemorySourceContext) -> None:
        """A tender whose release is dated years ahead is withdrawn by its cancellation of today, in one page or in two."""
        ahead = release(1) | {"date": "2031-01-01T00:00:00Z"}
        cancelled = release(1, day=1, status="cancelled", tag="tenderCancellation")
        context.time = datetime(2026, 2, 1, 12, tzinfo=UTC)
        assert self.tell(pages, source, context, ahead).announces
        assert self.tell(pages, source, context, cancelled).withdrawn
        context.items.clear()
        assert self.tell(pages, source, context, cancelled, ahead).withdrawn

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ("2026-03-02T17:00:00-03:00", "2026-03-02T23:59:59-03:00"),
            ("2026-03-02T12:00:00Z", "2026-03-02T03:00:00Z"),
        ],
    )
    def test_a_closing_that_moves_to_midnight(
        self, pages: Pages, source: Ocds, context: MemorySourceContext, before: str, after: str
    ) -> None:
        """An exact time is taken, whatever time it is."""
        closing = [
            release(1, day=day)
            | {"tender": {"id": "1", "title": "W", "status": "active", "tenderPeriod": {"endDate": at}}}
            for day, at in ((1, before), (2, after))
        ]
        self.tell(pages, source, context, closing[0])
        assert self.tell(pages, source, context, closing[1]).cierra_at == datetime.fromisoformat(after)

    def test_a_bare_day_is_less_than_a_time_on_it(
        self, pages: Pages, source: Ocds, context: MemorySourceContext
    ) -> None:
        """The stored time stays; another day is taken."""
        for day, at in ((1, "2026-03-02T17:00:00Z"), (2, "2026-03-02"), (3, "2026-03-03")):
            tender = {"id": "1", "title": "W", "status": "active", "tenderPeriod": {"endDate": at}}
            item = self.tell(pages, source, context, release(1, day=day) | {"tender": tender})
            assert item.cierra_at == datetime(2026, 3, 2, 17, tzinfo=UTC) if day < 3 else item.cierra_at.day == 3

    def test_pages_that_go_round(self, pages: Pages, source: Ocds, context: MemorySourceContext) -> None:
        """A leads to B, B to C, and C to B: the pass ends, and says so."""
        for number, (path, following) in enumerate((("/1", "/2"), ("/2", "/3"), ("/3", "/2")), 1):
            pages.pages[path] = {"releases": [release(number)], "links": {"next": following}}
        answers = context.run(source)
        assert len(pages.paths()) < 10
        assert len(context.items) == 3
        assert [reject.reason for answer in answers for reject in answer.rejects] == [
            "its link to the next page leads back"
        ]

    @pytest.mark.parametrize(
        ("document", "reason"),
        [
            ({"releases": [release(1) | {"tender": None}]}, "it is tagged tender and has no tender"),
            (
                {
                    "records": [
                        {"ocid": "ocds-abc123-1", "releases": [{"url": "https://example.com/r", "date": "2026-02-01"}]}
                    ]
                },
                "a release that is named by its address alone: the package must hold it",
            ),
            (
                {"records": [{"ocid": "ocds-abc123-1", "versionedRelease": {"ocid": "ocds-abc123-1"}}]},
                "a record with nothing but a versioned release: its releases or a compiled one are needed",
            ),
            (
                {"releases": [release(1) | {"tender": {"id": "1", "title": "W", "tenderPeriod": "until Friday"}}]},
                "tenderPeriod is no object: until Friday",
            ),
        ],
        ids=["tag without tender", "linked", "versioned", "period as text"],
    )
    def test_what_cannot_be_used_is_a_reject(
        self, pages: Pages, source: Ocds, context: MemorySourceContext, document: dict[str, Any], reason: str
    ) -> None:
        """Neither a row nor silence."""
        pages.pages["/1"] = document
        answers = context.run(source)
        assert [reject.reason for answer in answers for reject in answer.rejects] == [reason]
        assert not context.items

    def test_a_packed_file(self, tmp_path: Path, context: MemorySourceContext) -> None:
        """Files of gzip are read; one that is cut off, or unpacks to too much, is a reject."""
        whole = gzip.compress(json.dumps({"releases": [release(1)]}).encode())
        (tmp_path / "a.json.gz").write_bytes(whole)
        (tmp_path / "b.json.gz").write_bytes(whole[:-9])
        (tmp_path / "c.json.gz").write_bytes(gzip.compress(b" " * 3_000_000))
        answers = context.run(Ocds(settings_for(ocds_folder=tmp_path, http_max_bytes=1_000_000)))
        assert [item.nombre for item in context.items.values()] == ["Works"]
        rejects = sorted((reject.place, reject.reason) for answer in answers for reject in answer.rejects)
        assert rejects == [
            ("b.json.gz", "the file is no whole gzip"),
            ("c.json.gz", "the file has more than 1000000 bytes (HTTP_MAX_BYTES)"),
        ]

    def test_a_point_in_an_amount_that_is_text(self, pages: Pages, source: Ocds, context: MemorySourceContext) -> None:
        """Outside Chile the one point of a text is a decimal point, as in a number; several part thousands."""
        for day, (said, meant) in enumerate((("1.234", "1.23"), ("1.234.567", "1234567")), 1):
            tender = {"id": "1", "title": "W", "status": "active", "value": {"amount": said, "currency": "USD"}}
            item = self.tell(pages, source, context, release(1, day=day) | {"tender": tender})
            assert item.monto == Decimal(meant)
