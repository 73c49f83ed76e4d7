"""The named statements: what a file says about all of its statements belongs to none of another file."""

from __future__ import annotations

from relevo.core import queries

STEPS = ("claims", "journal", "settle", "receipts")


def test_files_loaded_together_do_not_run_into_each_other() -> None:
    """A statement is the same whether its file is loaded alone or before others."""
    alone = {name: body for step in STEPS for name, body in queries.load(step).items()}
    assert dict(queries.load(*STEPS)) == alone
