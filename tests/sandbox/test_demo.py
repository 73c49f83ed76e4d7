"""The demo's shop: the same customers every time, orders of their own, and a sample of tenders beside."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import psycopg

from relevo import config
from relevo.access import phones
from relevo.app import App
from relevo.core.errors import DatabaseUnavailableError, InvalidInputError
from relevo.sandbox import demo
from relevo.sources.folder import Folder


def _shop(app: App, **how: Any) -> demo.Shop:
    """Make the shop of a process that runs no cycle for it."""
    return demo.Shop(app.database, app.settings.relevo_data_dir, lambda _name: "succeeded", phones.new_secret, **how)


def test_the_sample_is_laid_out_once(tmp_path: Path) -> None:
    """The sample is copied once and left as it is then; the source reads that folder, and soon."""
    settings = config.load({"RELEVO_DATA_DIR": str(tmp_path / "data")}, None)
    assert demo.wanted(settings)
    demo.lay_out(settings)
    (settings.sample_folder / "tenders.jsonl").write_text("changed", encoding="utf-8")
    demo.lay_out(settings)
    assert (settings.sample_folder / "tenders.jsonl").read_text(encoding="utf-8") == "changed"
    source = Folder(settings)
    assert source._drop._folder == settings.sample_folder
    assert source.interval_ms <= 60_000


def test_the_shop_opens_once_and_sells_more(build, conn) -> None:
    """Opened twice it has the same customers, orders and past month; a sale is an order of its own, every fifth an offer too."""
    app = build()
    for _ in range(2):
        demo.open_shop(app.database)
    told = "select event_type, count(*) from relevo.notification_events where created_at > now() - interval '1 day' group by 1 order by 1"
    assert conn.execute(told).fetchall() == [("offer", 1), ("order.shipped", 7)]
    past = "select count(*), count(distinct date_trunc('month', event_day)) from relevo.notification_deliveries where status = 'ok'"
    assert conn.execute(past).fetchone() == (40, 1)
    assert conn.execute("select count(distinct owner) from relevo.device_installations").fetchone() == (7,)
    shop = _shop(app)
    shop.sell("ana", "a kettle", 1)
    shop.sell("ana", "a kettle", 5)
    assert conn.execute(told).fetchall() == [("offer", 2), ("order.shipped", 9)]


def test_it_stops_whether_it_began_or_not(build) -> None:
    """What was never watched ends as well as what was."""
    app = build()
    _shop(app).stop()
    began = _shop(app, every_s=3600)
    began.watch()
    began.stop()


def test_an_order_that_cannot_be_sold_ends_no_demo(build, monkeypatch) -> None:
    """Whatever the database or Relevo says of an order, the next one comes."""
    sold, enough = [], threading.Event()
    faults = [psycopg.OperationalError("away"), InvalidInputError("no"), DatabaseUnavailableError("gone")]

    def sell(_shop: demo.Shop, owner: str, *_: object) -> None:
        sold.append(owner)
        if faults:
            raise faults.pop()
        enough.set()

    monkeypatch.setattr(demo.Shop, "sell", sell)
    monkeypatch.setattr(demo.Shop, "_archive", lambda _: None)
    shop = _shop(build(), every_s=0.01)
    shop.watch()
    assert enough.wait(60)
    shop.stop()
    assert sold[:4] == ["ana", "benja", "carla", "diego"]
