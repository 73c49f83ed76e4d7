"""The queries for analysts run over a real archive."""

from __future__ import annotations

import duckdb
import pytest

from support.docs_pages import DOCS, ROOT, Block, blocks

KEPT = ROOT / "tests" / "archive" / "kept" / "v1"
QUERIES = [block for block in blocks(DOCS / "archive-for-analysts.md") if block.words == ("sql", "duckdb")]


@pytest.mark.parametrize("block", QUERIES, ids=lambda block: f"line {block.line}")
def test_duckdb_reads_the_archive_in_place(block: Block) -> None:
    """Each query finds rows in files that an earlier version wrote."""
    with duckdb.connect() as duck:
        rows = duck.sql(block.text.replace("archive/relevo/", f"{KEPT}/relevo/")).fetchall()
    assert rows
    assert sum(row[-1] if len(row) == 2 else row[2] for row in rows) > 0


def test_there_are_queries() -> None:
    """The page has some."""
    assert len(QUERIES) >= 2
