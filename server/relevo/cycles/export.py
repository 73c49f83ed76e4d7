"""Archive-export: retired months go to the store as Parquet, are read back and compared, and only then dropped."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
import structlog
from psycopg.rows import class_row

from relevo.archive import copying, iceberg, manifest, marker
from relevo.archive.copying import Relation, Span
from relevo.archive.manifest import Manifest, Month
from relevo.archive.throttle import Throttle
from relevo.core import queries
from relevo.core.errors import ArchiveError, ArchiveMissingError, ArchiveMonthError
from relevo.core.i18n import N_
from relevo.core.logs import normalise_error
from relevo.core.model import Step
from relevo.core.ports import ArchiveStore
from relevo.core.version import __version__
from relevo.cycles import Assembled
from relevo.runtime.cycle_facts import CycleFacts
from relevo.runtime.runs import Cycle, Run
from relevo.runtime.timing import Cron

FACTS = CycleFacts(
    "archive-export",
    does="writes retired months to the store as Parquet, reads them back, compares them, and drops them",
    counts={
        "rows_exported": "rows written",
        "parts_uploaded": "files written",
        "months_exported": "months written completely",
        "rows_verified": "rows read back and compared",
        "months_verified": "months whose files equal the tables",
        "months_dropped": "months dropped from PostgreSQL",
        "mismatches": "months whose files differ from the tables",
        "months_registered": "months registered in the Iceberg catalog",
    },
    after="cleanup",
    singleton=True,
)
_SQL = queries.load("export")
_log = structlog.get_logger("relevo.export")
_SCHEMA = "relevo_archive"
_MOST_TROUBLED = 3  # months in a row that met a store in trouble end a run: the others would fare no better
_PUT_TIMEOUTS = 20  # a slow store takes a part in many requests, and is asked again after a failure
OFF = N_("no archive store is set; set ARCHIVE_BUCKET or ARCHIVE_FOLDER")


@dataclass(frozen=True, kw_only=True)
class ExportMonth(Month):
    """A month that left the hot tables and has not left the database."""

    state: str
    relation: str = ""
    """The table that is to be dropped, as the database has it."""
    part_rows: int
    rows: int
    export_id: str
    """The metadata of the month's objects, which distinguishes them from those of another database."""
    manifest_sha256: str | None
    """The hash of the manifest that was written, by whatever version of this program."""

    def key_of(self, part: int) -> str:
        """Return where one of its parts lies."""
        return self.folder + manifest.part_name(part)


@dataclass(frozen=True)
class ExportPart:
    """A part that was uploaded: a fixed range of the sorted rows."""

    part: int
    first_key: list[str]
    last_key: list[str]
    rows: int
    bytes: int
    file_sha256: str
    content_sha256: str
    verified: bool


class Mismatch(ArchiveError):  # noqa: N818 a state of affairs
    """The store holds something else than the database."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(f"{key} {why}.", hint="Nothing is dropped; it is exported again.")


def cycles(given: Assembled) -> list[Cycle]:
    """Return archive-export for the schedule: once a night in the whole fleet; without a store it is off."""
    settings, store = given.settings, given.store
    timing = Cron(settings.archive_export_cron, settings.worker_timezone)
    throttle = Throttle(settings.archive_busy_share_percent)
    stall_ms = max(3 * settings.outbox_lease_duration_ms, _PUT_TIMEOUTS * settings.archive_timeout_ms)

    def step(run: Run) -> Step:
        assert store is not None  # a cycle that is off takes no step
        throttle.look(run)
        began = time.monotonic()
        taken = Export(run, store).step()
        if taken.more:
            throttle.rest(run, time.monotonic() - began)
        return taken

    return [Cycle.of(FACTS, timing, step, off="" if store else OFF, stall_ms=stall_ms)]


@dataclass(frozen=True)
class Export:
    """The steps of one run."""

    run: Run
    store: ArchiveStore

    def step(self) -> Step:
        """Upload one part, or verify one, or drop one month whose grace is over, or register one."""
        month = self._find()
        if month is None:
            return iceberg.step(self.run, self.store)
        work = {"retired": self._upload, "exported": self._verify, "verified": self._drop}[month.state]
        try:
            marker.check(self.run, self.store)
        except ArchiveError as error:
            return replace(self._leave(month, error), more=False)
        try:
            done = work(month)
        except Mismatch as wrong:
            return self._alarm(month, wrong)
        except (ArchiveMonthError, psycopg.Error) as error:  # an outage is none of these
            return self._leave(month, error)
        except ArchiveError as error:  # of this object, or of the whole store: the next months tell
            self.run.given_up.troubled_in_a_row += 1
            left = self._leave(month, error)
            return replace(left, more=self.run.given_up.troubled_in_a_row < _MOST_TROUBLED)
        self.run.given_up.troubled_in_a_row = 0
        return done

    def _find(self) -> ExportMonth | None:
        asked = {"given_up": list(self.run.given_up.months), "now": self.run.now}
        with self.run.transaction() as connection, connection.cursor(row_factory=class_row(ExportMonth)) as cursor:
            return cursor.execute(_SQL["find_month"], asked).fetchone()

    def _write(self, statement: str, month: ExportMonth, **more: object) -> bool:
        return self.run.execute(_SQL[statement], month.key | more).rowcount == 1

    def _alarm(self, month: ExportMonth, wrong: Mismatch) -> Step:
        """Log an error, and export the month again: a second mismatch in one run leaves that to the next run."""
        _log.error("archive_mismatch", relation=month.relation, store=self.store.name, detail=str(wrong))
        given_up = self.run.given_up
        if month.relation in given_up.mismatches:
            given_up.months.add(month.relation)
        given_up.mismatches.add(month.relation)
        return Step({"mismatches": 1}, more=True, problems=(f"{month.relation}: {normalise_error(wrong, 300)}",))

    def _leave(self, month: ExportMonth, error: Exception) -> Step:
        """Leave a month to a later run, and go on with the others."""
        self._write("record_trouble", month, error=normalise_error(error))
        self.run.given_up.months.add(month.relation)
        return Step(more=True, problems=(f"{month.relation}: {normalise_error(error, 300)}",))

    def _wrong(self, month: ExportMonth, parts: Sequence[int], key: str, why: str) -> Mismatch:
        """Write down that the store holds something else than the database, and return it to be raised."""
        wrong = Mismatch(key, why)
        self._write("record_mismatch", month, parts=list(parts), error=normalise_error(wrong))
        return wrong

    def _parts(self, month: ExportMonth) -> list[ExportPart]:
        with self.run.transaction() as connection, connection.cursor(row_factory=class_row(ExportPart)) as cursor:
            return cursor.execute(_SQL["list_parts"], month.key).fetchall()

    def _relation(self, month: ExportMonth) -> Relation:
        with self.run.database.transaction() as connection:
            return copying.read_relation(connection, _SCHEMA, month.relation)

    def _upload(self, month: ExportMonth) -> Step:
        """Upload the next part of a month; after the last one its manifest."""
        parts = self._parts(month)
        number = next((n for n, part in enumerate(parts, start=1) if part.part != n), len(parts) + 1)
        before = parts[number - 2].last_key if number > 1 else []
        with tempfile.TemporaryDirectory(prefix="relevo-export-") as folder:
            self._refuse_others_manifest(month, Path(folder) / "there")
            path = Path(folder) / manifest.part_name(number)
            made = copying.in_background(lambda: self._write_part(month, number, before, path))
            if made is None:
                return self._finish_upload(month, parts, Path(folder))
            self._put(month, path)
        self._write("record_part", month, **made)
        return Step({"rows_exported": made["rows"], "parts_uploaded": 1}, items=made["rows"], more=True)

    def _write_part(self, month: ExportMonth, number: int, after: Sequence[str], path: Path) -> dict[str, Any] | None:
        """Write the next part to a file and return what is to be written down of it, or None after the last."""
        from relevo.archive import parquet  # noqa: PLC0415 Arrow takes a tenth of a second, and most commands never export

        relation = self._relation(month)
        span = Span(after, most=month.part_rows)
        with copying.copied(self.run.database, relation, span, self._about(month, number)) as copied:
            rows = parquet.write_file(path, copied)
        if not rows:
            return None
        return {
            "part": number,
            "first_key": list(after),
            "last_key": copied.last_key(relation.keys),
            "rows": rows,
            "bytes": path.stat().st_size,
            "file_sha256": manifest.file_sha256(path),
            "content_sha256": copied.sha256,
        }

    def _about(self, month: ExportMonth, number: int) -> dict[str, str]:
        from relevo.archive import parquet  # noqa: PLC0415

        return {
            "entity": month.entity,
            "month": f"{month.month:%Y-%m}",
            "part": str(number),
            "export_id": month.export_id,
            "schema_version": str(parquet.SCHEMA_VERSION),
            "software_version": __version__,
        }

    def _put(self, month: ExportMonth, path: Path) -> None:
        """Store a file; what lies there is kept if it is the same, replaced if it is this export's, else refused."""
        key = month.folder + path.name
        if self.store.put(key, path):
            return
        there = path.with_name("there")
        self.store.fetch(key, there)
        if manifest.file_sha256(there) == manifest.file_sha256(path):
            return
        self._refuse_others(month, key, there)
        self._still_ours()
        self.store.put(key, path, replace=True)

    def _refuse_others(self, month: ExportMonth, key: str, there: Path) -> None:
        """Raise if an object in the store is another export's, or is damaged and nothing says that it is this one's."""
        written_by = _written_by(there, key)
        if written_by is not None and written_by != month.export_id:
            raise ArchiveMonthError(
                f"{key} in {self.store.name} belongs to another database.",
                hint="Give each its own ARCHIVE_PREFIX; or remove it, if nobody misses it.",
            )
        if written_by is None and not self._is_ours_beside(month, there):
            raise ArchiveMonthError(
                f"{key} in {self.store.name} cannot be read, and nothing beside it says that it is this database's.",
                hint="Remove it, if nobody misses it; then the month is exported.",
            )

    def _is_ours_beside(self, month: ExportMonth, path: Path) -> bool:
        """Return whether the month's objects that can still be read are all of this export, and there is one."""
        authors = set()
        for each in self.store.listing(month.folder):
            self.run.may_go_on()  # raises if the lease was lost
            self.store.fetch(each.key, path)
            authors.add(_written_by(path, each.key))
        return authors - {None} == {month.export_id}

    def _refuse_others_manifest(self, month: ExportMonth, path: Path) -> None:
        """Raise if the month is another export's already: nothing is laid beside its files."""
        key = month.manifest_key
        try:
            self.store.fetch(key, path)
        except ArchiveMissingError:
            return
        if _written_by(path, key) is not None:  # what is damaged is looked at when it is replaced
            self._refuse_others(month, key, path)

    def _still_ours(self) -> None:
        """Raise if the lease was lost: whoever lost it takes nothing away."""
        with self.run.transaction():
            pass

    def _tidy(self, month: ExportMonth) -> None:
        """Take away what uploads that died left unfinished; by now all that counts is whole."""
        self._still_ours()
        self.store.tidy(month.folder)

    def _finish_upload(self, month: ExportMonth, parts: Sequence[ExportPart], folder: Path) -> Step:
        self._tidy(month)
        path = folder / "_manifest.json"
        path.write_text(self._manifest(month, parts).to_json(), encoding="utf-8")
        self._put(month, path)
        if not self._write("finish_upload", month, manifest_sha256=manifest.file_sha256(path)):
            uploaded = sum(part.rows for part in parts)
            raise self._wrong(month, [], month.relation, f"has {month.rows} rows, and its parts {uploaded}")
        return Step({"months_exported": 1}, items=1, more=True)

    def _manifest(self, month: ExportMonth, parts: Sequence[ExportPart]) -> Manifest:
        from relevo.archive import parquet  # noqa: PLC0415

        relation = self._relation(month)
        listed = tuple(
            manifest.Part(
                manifest.part_name(part.part),
                part.rows,
                part.bytes,
                part.file_sha256,
                part.content_sha256,
                tuple(part.first_key),
                tuple(part.last_key),
            )
            for part in parts
        )
        about = (month.entity, month.month, parquet.SCHEMA_VERSION, __version__)
        return Manifest(*about, relation.columns, relation.keys, listed, month.export_id, relation.group_rows)

    def _verify(self, month: ExportMonth) -> Step:
        """Read one part back from the store and compare it with the database's rows; after the last one, the whole."""
        parts = self._parts(month)
        part = next((each for each in parts if not each.verified), None)
        with tempfile.TemporaryDirectory(prefix="relevo-verify-") as folder:
            if part is None:
                self._check_whole(month, parts, Path(folder))
                done = self._write(
                    "finish_verify", month, now=self.run.now, grace_days=self.run.settings.archive_grace_days
                )
                return Step({"months_verified": int(done)}, items=1, more=True)
            key = month.key_of(part.part)
            why = copying.in_background(lambda: self._differs(month, part, key, Path(folder) / "fetched"))
        if why:
            raise self._wrong(month, [part.part], key, why)
        self._write("record_verified", month, part=part.part)
        return Step({"rows_verified": part.rows}, items=part.rows, more=True)

    def _differs(self, month: ExportMonth, part: ExportPart, key: str, path: Path) -> str:
        """Return how an object differs from the database's rows, read again; an empty text if it is equal."""
        from relevo.archive import parquet  # noqa: PLC0415

        try:
            self.store.fetch(key, path)
        except ArchiveMissingError:
            return "is not in the store"
        if manifest.file_sha256(path) != part.file_sha256:
            return "is not the file that was uploaded"
        span = Span(part.first_key, part.last_key)
        relation, about = self._relation(month), self._about(month, part.part)
        with copying.copied(self.run.database, relation, span, about) as rows:
            if not parquet.same_rows(path, rows):
                return "does not hold the database's rows"
        return "" if rows.sha256 == part.content_sha256 else "was made from other rows than the database holds now"

    def _check_whole(self, month: ExportMonth, parts: Sequence[ExportPart], folder: Path) -> None:
        """See that the manifest is the one that was written, lists every object, and leaves no row out."""
        if not self._is_unchanged(month.manifest_key, month.manifest_sha256, folder / "manifest"):
            raise self._wrong(month, [], month.manifest_key, "is not what was written")
        self._check_listing(month, parts)
        relation, span = self._relation(month), Span(parts[-1].last_key if parts else (), most=1)
        with self.run.database.transaction() as connection:
            left_out = connection.execute(copying.compose_rows(connection, relation, span).encode()).fetchone()
        if left_out is not None:
            raise self._wrong(month, [], month.relation, "has rows that are in no part")

    def _check_listing(self, month: ExportMonth, parts: Sequence[ExportPart]) -> None:
        folder = month.folder
        found = {each.key.removeprefix(folder): each.size for each in self.store.listing(folder)}
        found.pop("_manifest.json", None)
        wrong = [part.part for part in parts if found.pop(manifest.part_name(part.part), None) != part.bytes]
        if wrong:
            raise self._wrong(month, wrong, month.key_of(wrong[0]), "is not in the store as it was uploaded")
        if found:
            raise ArchiveMonthError(
                f"{folder} in {self.store.name} holds what no manifest lists: {', '.join(sorted(found))[:200]}.",
                hint="Remove it, or move it elsewhere; then the month is verified.",
            )

    def _drop(self, month: ExportMonth) -> Step:
        """Drop a verified month whose grace is over, after a last look that its objects are what was verified."""
        parts = self._parts(month)
        self._tidy(month)
        with tempfile.TemporaryDirectory(prefix="relevo-drop-") as folder:
            self._check_whole(month, parts, Path(folder))
            path = Path(folder) / "part"
            changed = [p.part for p in parts if not self._is_unchanged(month.key_of(p.part), p.file_sha256, path)]
        if changed:
            raise self._wrong(month, changed, month.key_of(changed[0]), "is not the file that was uploaded")
        row = self.run.execute(_SQL["drop_retired"], month.key | {"now": self.run.now}).fetchone()
        dropped = int(row == (True,))
        return Step({"months_dropped": dropped}, items=dropped, more=True)

    def _is_unchanged(self, key: str, sha256: str | None, path: Path) -> bool:
        self.run.may_go_on()  # raises if the lease was lost
        try:
            self.store.fetch(key, path)
        except ArchiveMissingError:
            return False
        return manifest.file_sha256(path) == sha256


def _written_by(path: Path, key: str) -> str | None:
    """Return the export that an object in the store says it is of, or None if it can no longer be read."""
    from relevo.archive import parquet  # noqa: PLC0415

    return parquet.file_says(path, "export_id") if key.endswith(".parquet") else manifest.written_by(path.read_bytes())
