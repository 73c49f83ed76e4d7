"""`sql/schema.sql` says what the migrations make of an empty database."""

from __future__ import annotations

from datetime import date

import dump_schema


def test_the_dump_is_what_the_migrations_make(server, dsn) -> None:
    """A freshly migrated database looks exactly as written; else run scripts/dump_schema.py and read the diff."""
    written = dump_schema.SCHEMA.read_text(encoding="utf-8")
    assert dump_schema.dump(server.bin, dsn) == written, "run: .venv/bin/python scripts/dump_schema.py"


def test_the_dump_does_not_change_with_the_days(server, dsn, conn) -> None:
    """Partitions come and go and rows are written: neither is part of the schema."""
    before = dump_schema.dump(server.bin, dsn)
    conn.execute("select relevo.ensure_partitions(%s, 3)", [date(2041, 1, 1)])
    conn.execute("insert into relevo.cycle_state (cycle) values ('reaper')")
    assert dump_schema.dump(server.bin, dsn) == before
    assert "_2041_" not in before


def test_a_changed_schema_changes_the_dump(server, dsn, conn) -> None:
    """A column, an index, a function or a comment that is not written down is seen."""
    seen = {dump_schema.dump(server.bin, dsn)}
    for change in (
        "alter table relevo.workers add column more text",
        "create index on relevo.claims (worker_id)",
        "create function relevo.more() returns int language sql return 1",
        "comment on table relevo.claims is 'more'",
    ):
        conn.execute(change)
        seen.add(dump_schema.dump(server.bin, dsn))
    assert len(seen) == 5


def test_the_dump_can_be_loaded(server, dsn, empty_database, look) -> None:
    """It is whole: loaded into an empty database, it gives the same schema again."""
    look.execute(dump_schema.SCHEMA.read_text(encoding="utf-8").encode())
    assert dump_schema.dump(server.bin, empty_database) == dump_schema.dump(server.bin, dsn)
