"""What every source must do, whatever it reads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Literal

import pytest

from relevo.core.items import Item
from relevo.core.ports import Source
from relevo.sources.chilecompra import ChileCompra
from relevo.sources.chilecompra_web import ChileCompraWeb
from relevo.sources.folder import Folder
from relevo.sources.ocds import Ocds
from support.fake_chilecompra import TICKET, FakeChileCompra, FakeSearchPage
from support.fake_http_server import Answer, Asked, FakeServer
from support.source_context import FIXTURES, MemorySourceContext, settings_for

TODAY = date(2026, 2, 9)
HEAD = (FIXTURES / "web" / "export_header_only.csv").read_text(encoding="utf-8-sig").strip()


@dataclass
class World:
    """A source and the world it reads: tenders can be added to it, and it can break."""

    kind: str
    folder: Path
    context: MemorySourceContext
    stack: ExitStack
    tenders: dict[str, str] = field(default_factory=dict)
    broken: bool = False
    source: Source = field(init=False)

    def __post_init__(self) -> None:
        self.source = getattr(self, f"_{self.kind.replace('-', '_')}")()

    def add(self, number: int, nombre: str = "Compra de prueba") -> str:
        """Publish one more tender, or tell the same one under another name."""
        code = f"{number}-1-LE26"
        self.tenders[code] = nombre
        self._show(code)
        return code

    def break_it(self) -> None:
        """Let nothing be read any more."""
        self.broken = True
        if self.kind in ("folder", "ocds-folder"):
            self.folder.rename(self.folder.with_name("gone"))

    def mend(self) -> None:
        """Undo it."""
        self.broken = False
        if self.kind in ("folder", "ocds-folder"):
            self.folder.with_name("gone").rename(self.folder)

    def _chilecompra(self) -> Source:
        self.api = self.stack.enter_context(FakeChileCompra(clock=self.context.seconds))
        return ChileCompra(settings_for(chilecompra_ticket=TICKET, chilecompra_base_url=self.api.base_url))

    def _chilecompra_web(self) -> Source:
        self.page = self.stack.enter_context(FakeSearchPage(b"", b""))
        return ChileCompraWeb(settings_for(chilecompra_web_enabled="true", chilecompra_web_base_url=self.page.base_url))

    def _ocds(self) -> Source:
        self.web = self.stack.enter_context(FakeServer(self._packages))
        return Ocds(settings_for(ocds_url=f"{self.web.url}/packages"))

    def _ocds_folder(self) -> Source:
        return Ocds(settings_for(ocds_folder=self.folder))

    def _folder(self) -> Source:
        return Folder(settings_for(folder_source_dir=self.folder))

    def _packages(self, _: Asked) -> Answer:
        if self.broken:
            return Answer(200, b'{"status": 500, "detail": "Error en la generacion."}')
        return Answer(200, json.dumps(self._package(list(self.tenders))).encode())

    def _package(self, codes: list[str]) -> dict[str, Any]:
        return {"uri": "u", "releases": [self._release(code) for code in codes]}

    def _release(self, code: str) -> dict[str, Any]:
        items = [{"classification": {"scheme": "UNSPSC", "id": "72141003"}}]
        period = {"startDate": "2026-02-09T12:00:00Z", "endDate": "2026-03-01T12:00:00Z"}
        tender = {"id": code, "title": self.tenders[code], "status": "active", "tenderPeriod": period, "items": items}
        return {
            "ocid": f"ocds-abc123-{code}",
            "id": code,
            "date": "2026-02-09T12:00:00Z",
            "tag": ["tender"],
            "tender": tender,
        }

    def _show(self, code: str) -> None:
        if self.kind == "chilecompra":
            self.api.publish(code, TODAY, self.tenders[code])
        elif self.kind == "chilecompra-web":
            rows = [
                f"{each};{name};LE;Publicada;09/02/2026 10:00:00;D;CLP;P;D;1.000.000;M"
                for each, name in self.tenders.items()
            ]
            self.page.export = dict.fromkeys("10", "\r\n".join(["\ufeff" + HEAD, *rows]).encode())
        elif self.kind == "ocds-folder":
            (self.folder / f"{code}-{len(self.tenders)}-{len(self.tenders[code])}.json").write_text(
                json.dumps(self._package([code]))
            )
        elif self.kind == "folder":
            with (self.folder / "drop.jsonl").open("a") as file:
                file.write(json.dumps({"codigo": code, "nombre": self.tenders[code], "cierra_en_dias": 5}) + "\n")

    def shut(self) -> None:
        """Break a server's answers."""
        if self.kind == "chilecompra":
            self.api.fail(Answer(503, b"<html>down</html>"), times=None)
        if self.kind == "chilecompra-web":
            self.page.down = True
        self.break_it()

    def reopen(self) -> None:
        """Mend them."""
        if self.kind == "chilecompra":
            self.api.faults.clear()
        if self.kind == "chilecompra-web":
            self.page.down = False
        self.mend()


@pytest.fixture(params=["chilecompra", "chilecompra-web", "ocds", "ocds-folder", "folder"])
def world(request: pytest.FixtureRequest, tmp_path: Path, context: MemorySourceContext) -> Iterator[World]:
    """Each adapter in a world of its own."""
    folder = tmp_path / "drop"
    folder.mkdir()
    with ExitStack() as stack:
        yield World(request.param, folder, context, stack)


def check(item: Item) -> None:
    """Assert that an item fits the table it is written to."""
    bounds: dict[str, int] = {"namespace": 100, "external_id": 300, "nombre": 2000, "fingerprint": 64}
    optional = {"descripcion": 20_000, "organismo": 500, "region": 200, "tipo": 100, "estado": 100, "monto_label": 100}
    for name, most in bounds.items():
        assert 1 <= len(getattr(item, name)) <= most, name
    for name, most in (optional | {"rubro_scheme": 50, "url": 2000}).items():
        assert getattr(item, name) is None or 1 <= len(getattr(item, name)) <= most, name
    assert item.monto is None or (0 < item.monto < 10**18 and item.moneda)
    assert item.moneda is None or re.fullmatch("[A-Z]{3}", item.moneda)
    assert len(item.rubros) <= 2000
    for moment in (item.publicada_at, item.cierra_at):
        assert moment is None or moment.utcoffset() is not None


def test_it_tells_what_is_there_once(world: World) -> None:
    """What is there is told, fits the table, and is not told again."""
    codes = [world.add(number) for number in range(1, 4)]
    answers = world.context.run(world.source)
    assert [answer.outcome for answer in answers] == ["ok"] * len(answers)
    assert {name.removeprefix("ocds-abc123-") for name in world.context.codes()} == set(codes)
    for item in world.context.items.values():
        check(item)
        assert item.announces
        assert item.nombre == "Compra de prueba"
    again = world.context.run(world.source)
    assert [(answer.outcome, answer.items) for answer in again] == [("unchanged", ())]


def test_news_follow(world: World) -> None:
    """What is added later is told later, alone."""
    world.add(1)
    world.context.run(world.source)
    world.add(2)
    reported = [item.external_id for answer in world.context.run(world.source) for item in answer.items]
    assert [name.removeprefix("ocds-abc123-") for name in reported] == ["2-1-LE26"]


def test_a_change_is_told_as_the_same_item(world: World) -> None:
    """A tender told differently is one item with another fingerprint."""
    world.add(1)
    world.context.run(world.source)
    [before] = world.context.items.values()
    world.add(1, "Otro nombre")
    world.context.run(world.source)
    [after] = world.context.items.values()
    assert (after.nombre, after.external_id) == ("Otro nombre", before.external_id)
    assert after.fingerprint != before.fingerprint


def test_could_not_ask_is_not_nothing_new(world: World) -> None:
    """While it cannot be read it says so, tells nothing and stays where it was; then it goes on."""
    world.add(1)
    world.context.run(world.source)
    cursor = world.context.cursor
    world.shut()
    answer = world.source.fetch(cursor, world.context)
    assert answer.outcome in ("unavailable", "rejected")
    assert (answer.items, answer.more, dict(answer.cursor)) == ((), False, cursor)
    assert answer.detail
    world.reopen()
    world.add(2)
    world.context.run(world.source)
    assert len(world.context.items) == 2


def test_unreadable_from_the_first_time_on(world: World) -> None:
    """A first time that fails leaves the first time to come."""
    world.add(1)
    world.shut()
    answer = world.source.fetch({}, world.context)
    assert answer.outcome in ("unavailable", "rejected")
    assert dict(answer.cursor) == {}


def test_a_run_whose_time_is_over_is_no_trouble(world: World) -> None:
    """Wherever a run is cut off, it tells of no trouble and gives nothing up; later ones bring what is there."""
    codes = {world.add(number) for number in range(1, 4)}
    for turns in range(10):
        world.context.turns_left = turns
        answer = world.context.step(world.source)
        assert (answer.outcome in ("ok", "unchanged"), answer.detail, answer.rejects) == (True, "", ()), turns
    assert {name.removeprefix("ocds-abc123-") for name in world.context.codes()} == codes


def test_batches_are_bounded(world: World) -> None:
    """However much there is, one answer holds at most 500 items, and the last of a pass says that it is the last."""
    world.tenders = {f"{number}-1-LE26": "Compra de prueba" for number in range(1, 620)}
    if world.kind == "chilecompra":
        world.tenders = dict(list(world.tenders.items())[:60])
    for code in list(world.tenders):
        if world.kind in ("chilecompra", "folder"):
            world._show(code)
    if world.kind == "chilecompra-web":
        world._show("1-1-LE26")
    if world.kind == "ocds-folder":
        (world.folder / "all.json").write_text(json.dumps(world._package(list(world.tenders))))
    answers = world.context.run(world.source)
    assert len(answers) > 1
    assert all(len(answer.items) <= 500 for answer in answers)
    assert len(world.context.items) == len(world.tenders)


def test_an_answer_not_kept_is_told_again(world: World) -> None:
    """If the batch was not committed, the same cursor tells the same."""
    world.add(1)
    first, second = (world.source.fetch({}, world.context) for _ in range(2))
    assert [item.external_id for item in first.items] == [item.external_id for item in second.items] != []


def test_the_cursor_is_small_and_plain(world: World) -> None:
    """A cursor is a JSON object of a few kilobytes."""
    for number in range(1, 30):
        world.add(number)
    world.context.run(world.source)
    assert isinstance(world.context.cursor, dict)
    assert len(json.dumps(world.context.cursor)) < 10_000


def test_names_and_intervals(world: World) -> None:
    """It has a name and an interval, and takes stock silently on its first pass."""
    name: Literal["chilecompra", "chilecompra-web", "ocds", "folder"] = world.source.name  # type: ignore[assignment]
    assert name == world.kind.replace("ocds-folder", "ocds")
    assert world.source.interval_ms == 120_000
    assert world.source.seeds_silently is True


def test_secrets_do_not_show(world: World) -> None:
    """Neither the source nor what it answers repeats the ticket."""
    world.add(1)
    answers = world.context.run(world.source)
    world.shut()
    answers.append(world.source.fetch(world.context.cursor, world.context))
    assert TICKET not in f"{world.source!r} {vars(world.source)} {answers} {world.context.turns}"


def test_fixtures_are_there() -> None:
    """The suite carries its own data."""
    assert len(list(FIXTURES.rglob("*.json"))) > 20
