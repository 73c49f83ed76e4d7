"""The demo's tenders: made up, but usable, and dropped where the source reads them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from relevo import config, demo
from relevo.model import Item
from relevo.sources.folder import Folder, read_line

NOW = datetime(2026, 11, 16, tzinfo=UTC)


def test_every_tender_can_be_read_and_announces_itself() -> None:
    """Whatever is made up is a tender of its own that phones are told of; the troubled phones' words come early."""
    made = [demo.tender(number) for number in range(1, 100)]
    read = [read_line(each, "sample", NOW) for each in made]
    assert all(isinstance(each, Item) and each.announces for each in read)
    assert len({each["codigo"] for each in made}) == len(made)
    early = " ".join(each["nombre"] for each in made[:3])
    assert "luminarias" in early
    assert "plaza" in early


def test_they_are_dropped_where_the_source_reads(tmp_path: Path) -> None:
    """The sample is copied once and left as it is then; each drop adds a line; the source reads that folder, and soon."""
    settings = config.load({"RELEVO_DATA_DIR": str(tmp_path / "data")}, None)
    assert demo.wanted(settings)
    demo.lay_out(settings)
    (settings.sample_folder / "tenders.jsonl").write_text("changed", encoding="utf-8")
    demo.lay_out(settings)
    assert (settings.sample_folder / "tenders.jsonl").read_text(encoding="utf-8") == "changed"
    news = demo.News(settings)
    news.drop()
    news.drop()
    assert len((settings.sample_folder / "new.jsonl").read_text(encoding="utf-8").splitlines()) == 2
    source = Folder(settings)
    assert source._drop._folder == settings.sample_folder
    assert source.interval_ms <= 60_000


def test_it_stops_whether_it_began_or_not(tmp_path: Path) -> None:
    """What was never watched ends as well as what was."""
    settings = config.load({"RELEVO_DATA_DIR": str(tmp_path)}, None)
    demo.News(settings).stop()
    began = demo.News(settings, every_s=3600)
    began.watch()
    began.stop()
