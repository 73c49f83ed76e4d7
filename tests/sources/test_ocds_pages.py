"""OCDS by pages: which are read, in which order, where it goes on, and errors inside 200."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from relevo.sources.ocds import MAX_STUCK, Ocds
from support.fake_http_server import Answer
from support.ocds_pages import OCDS, Pages, release
from support.source_context import FIXTURES, MemorySourceContext, settings_for


@pytest.fixture
def source(pages: Pages) -> Ocds:
    """The adapter, pointed at it."""
    return Ocds(settings_for(ocds_url=f"{pages.url}/1"))


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

    def test_one_that_no_time_is_left_for_has_not_failed(
        self, pages: Pages, source: Ocds, context: MemorySourceContext
    ) -> None:
        """Packages that a run did not come to are rejects of nobody: the next run fetches them."""
        self.index(pages)
        context.turns_left = 4
        answer = context.step(source)
        assert (answer.outcome, len(context.items), context.rejects) == ("ok", 3, {})
        context.turns_left = None
        context.run(source)
        assert len(context.items) == 10

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


def test_time_passes(pages: Pages, source: Ocds, context: MemorySourceContext) -> None:
    """A tender that is told again unchanged after it closed is no news."""
    open_one = release(1)
    open_one["tender"]["tenderPeriod"] = {"endDate": "2026-02-11T00:00:00Z"}
    pages.pages["/1"] = {"releases": [open_one]}
    context.run(source)
    context.time += timedelta(days=9)
    assert context.run(source)[0].outcome == "unchanged"


def test_a_pass_that_begins_anew_reads_its_page_anew(
    pages: Pages, source: Ocds, context: MemorySourceContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page longer than a batch is kept for the batches of its pass alone: a later pass asks for it again."""
    monkeypatch.setattr("relevo.sources.ocds.ITEMS_PER_FETCH", 1)
    pages.pages["/1"] = {"releases": [release(1), release(2)]}
    begun = source.fetch({}, context)
    assert begun.more
    source.fetch(begun.cursor, context)
    assert pages.paths() == ["/1"]
    for _ in range(2):
        source.fetch({}, context)
    assert pages.paths() == ["/1", "/1"]
