"""OCDS: real packages of several countries, each form of a release, and that nothing is dropped in silence."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from relevo.core.items import Item
from relevo.sources.ocds import Ocds
from support.ocds_pages import COMPILED, OCDS, Pages, read, release
from support.source_context import MemorySourceContext, settings_for


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

    def test_planning_and_tender_in_one_release_is_told(
        self, pages: Pages, source: Ocds, context: MemorySourceContext
    ) -> None:
        """A release may bring both: its tender is there, whatever else it is."""
        tags = (["planning", "tender"], ["planningUpdate", "planning"])
        both = [release(number) | {"tag": each} for number, each in enumerate(tags, 1)]
        pages.pages["/1"] = {"releases": both}
        [item] = context.run(source)[0].items
        assert (item.external_id, item.announces) == ("ocds-abc123-1", True)

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

    @pytest.mark.parametrize("closes", ["next Friday", 17, {"date": "2026-03-01"}, "2026-13-40"])
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

    @pytest.mark.parametrize(
        "closes", ["9999-12-31", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-05:00", "0001-01-01"]
    )
    def test_a_closing_that_means_none(
        self, pages: Pages, source: Ocds, context: MemorySourceContext, closes: str
    ) -> None:
        """A date by which publishers say that there is none is none: the tender is told, without a closing."""
        reported = release(1)
        reported["tender"]["tenderPeriod"] = {"endDate": closes}
        pages.pages["/1"] = {"releases": [reported, release(2)]}
        context.run(source)
        assert context.rejects == {}
        items = {item.external_id: item for item in context.items.values()}
        assert items.keys() == {"ocds-abc123-1", "ocds-abc123-2"}
        assert (items["ocds-abc123-1"].cierra_at, items["ocds-abc123-1"].announces) == (None, True)

    def test_colombias_codes(self, pages: Pages, source: Ocds, context: MemorySourceContext) -> None:
        """Where no item is classified, an id that is a UNSPSC code is one."""
        reported = release(1)
        reported["tender"]["items"] = [{"id": "72141003"}, {"id": "V1.80111600"}, {"id": "7"}]
        pages.pages["/1"] = {"releases": [reported]}
        context.run(source)
        [item] = context.items.values()
        assert (item.rubros, item.rubro_scheme) == (("72141003", "80111600"), "UNSPSC")

    def test_long_ocids_stay_apart(self, pages: Pages, source: Ocds, context: MemorySourceContext) -> None:
        """Two ocids that differ only after thousands of characters are two tenders, each with a name that fits."""
        for longest in (400, 5_000):
            ocids = [f"ocds-abc123-{'x' * longest}{end}" for end in "ab"]
            pages.pages["/1"] = {"releases": [release(1) | {"ocid": ocid} for ocid in ocids]}
            context.run(source)
        assert len(context.items) == 4
        assert {len(external_id) for _, external_id in context.items} == {300}


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
