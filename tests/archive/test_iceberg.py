"""Exported months as tables of Iceberg: named, never rewritten, and forgotten when the archive has them no more."""

from __future__ import annotations

import shutil
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog, load_catalog
from typer.testing import CliRunner

from relevo.app import App
from relevo.archive import manifest, restore
from relevo.archive.iceberg import IcebergTables
from relevo.cli import cli
from relevo.config import Settings
from relevo.core.errors import MissingPartError
from relevo.operators import doctor
from support.old_months import export, month_ago, open_store

ENTITY = "notification_deliveries"
OLD = month_ago(5)


@pytest.fixture
def retired(build: Callable[..., App], folder_settings: dict[str, Any]) -> Callable[..., App]:
    """A month of 300 deliveries, retired (see `retired_template`), and apps that export it in three parts."""
    return partial(build, archive_part_rows=100, **folder_settings)


def opened(settings: Settings) -> Catalog:
    """Open the catalog as an analyst would, who knows nothing of Relevo."""
    return load_catalog("relevo", type="sql", uri=str(settings.archive_iceberg_uri))


def test_an_exported_month_is_a_table(
    retired: Callable[..., App], folder_settings: dict[str, Any], tmp_path: Path
) -> None:
    """Export names its files once, an analyst reads every row, and no text of a row stands in the metadata."""
    built = retired(archive_iceberg_uri=f"sqlite:///{tmp_path}/catalog.db")
    report = export(built)
    assert (report.outcome, report.counts["months_verified"], report.counts["months_registered"]) == ("ok", 2, 2)
    store, settings = open_store(**folder_settings), built.settings
    record = restore.read_manifest(store, ENTITY, OLD)
    table = opened(settings).load_table(f"relevo.{ENTITY}")
    assert table.scan().to_arrow().num_rows == record.rows == 300
    failed = table.scan(row_filter="status = 'failed'", selected_fields=("id",)).to_arrow().num_rows
    assert 0 < failed < record.rows

    tables = IcebergTables(settings, store)
    assert tables.register(record).added == 0, "what is named is not named twice"
    files = table.inspect.files().to_pylist()
    bounds = {
        name for file in files for name, seen in file["readable_metrics"].items() if seen["lower_bound"] is not None
    }
    assert {"id", "event_day"} <= bounds
    assert not bounds & {"installation_id", "event_type", "last_error_message", "provider_ticket_id"}

    shutil.rmtree(tmp_path / "cold" / "relevo" / manifest.Month(ENTITY, OLD).folder)
    assert tables.remove_others(ENTITY, lambda: restore.months(store, print)).removed == len(record.parts)
    table = opened(settings).load_table(f"relevo.{ENTITY}")
    assert table.scan().to_arrow().num_rows == 0
    assert len(table.snapshots()) == 1, "no snapshot leads to what is gone"
    left = [path.read_bytes() for path in (tmp_path / "cold" / "relevo" / "_iceberg").rglob("*.avro")]
    assert len(left) == 1 + len(table.current_snapshot().manifests(table.io))


def test_a_catalog_that_fails_is_tried_again_and_holds_nothing_up(
    retired: Callable[..., App], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A month is verified and dropped whatever its catalog says; run, list and doctor tell of it; the next run catches up.

    The command that registers needs the store alone, and no database.
    """
    place = tmp_path / "later"
    built = retired(archive_iceberg_uri=f"sqlite:///{place}/catalog.db", archive_grace_days=0)
    report = export(built)
    counts = report.counts
    assert (report.outcome, counts["months_verified"], counts["months_dropped"]) == ("partial", 2, 2)
    assert "The Iceberg catalog did not take notification_deliveries" in report.error

    told = ("archive_iceberg_uri", "archive_folder", "archive_prefix", "database_url")
    environ = {name.upper(): str(getattr(built.settings, name)) for name in told}
    listed = CliRunner().invoke(cli, ["archive", "list"], env=environ).output
    assert "is not in the Iceberg catalog" in listed
    (found,) = [each for each in doctor.look_around(built.database, built.settings) if "Iceberg" in each.what]
    assert (found.kind, found.warning) == ("month_unregistered", True)

    place.mkdir()
    report = export(built)
    assert (report.outcome, report.counts["months_registered"]) == ("ok", 2)
    assert opened(built.settings).load_table(f"relevo.{ENTITY}").scan().to_arrow().num_rows == 300
    assert not [each for each in doctor.look_around(built.database, built.settings) if "Iceberg" in each.what]
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, ["archive", "register"], env=environ | {"DATABASE_URL": None})
    assert (done.exit_code, f"{ENTITY}: 0 files added" in done.output) == (0, True), done.output


def test_a_silent_catalog_is_caught_up_with(
    retired: Callable[..., App], folder_settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Export does not wait for it for ever; what is registered while another lists manifests stays; what lacks is named."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"postgresql://catalog:secret@127.0.0.1:{silent.getsockname()[1]}/iceberg"
        built = retired(archive_iceberg_uri=uri, archive_timeout_ms=10)
        report = export(built)
    assert (report.outcome, report.counts["months_verified"]) == ("partial", 2)
    assert "The Iceberg catalog does not answer" in report.error

    store = open_store(**folder_settings)
    settings = built.settings.model_copy(update={"archive_iceberg_uri": f"sqlite:///{tmp_path}/catalog.db"})
    tables, record = IcebergTables(settings, store), restore.read_manifest(store, ENTITY, OLD)
    assert tables.register(record).added == tables.remove_others(ENTITY, list).removed == len(record.parts)

    def listed_before_it_came() -> list[manifest.Manifest]:
        tables.register(record)
        return []

    assert tables.remove_others(ENTITY, listed_before_it_came).removed == 0
    assert opened(settings).load_table(f"relevo.{ENTITY}").scan().to_arrow().num_rows == record.rows
    for name in ("pyiceberg.catalog", "pyiceberg.exceptions"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingPartError, match="pyiceberg is not installed"):
        tables.register(record)
