"""What sources say, made fit to keep."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from relevo.sources import text


@pytest.mark.parametrize(
    ("reported", "kept"),
    [
        ("  dos   palabras \n", "dos palabras"),
        ("CONVENIO\tDE\x00 SUMINISTRO\x85", "CONVENIO DE SUMINISTRO"),
        ("a\u00a0b\u200bc\u2028d", "a b c d"),
        ("media \ud83d vida", "media ? vida"),
        ("", None),
        (" \t", None),
        (None, None),
        (["x"], None),
        (True, None),
        (7, "7"),
        ("x" * 50, "x" * 10),
    ],
)
def test_clean(reported: object, kept: str | None) -> None:
    """Text becomes one line without what a database or a phone cannot bear, and of bounded length."""
    assert text.clean(reported, 30 if reported != "x" * 50 else 10) == kept


@pytest.mark.parametrize(
    ("reported", "kept"),
    [
        ("2026-02-19T15:00:00", datetime(2026, 2, 19, 18, tzinfo=UTC)),
        ("2026-02-19T15:00:00.1234567", datetime(2026, 2, 19, 18, 0, 0, 123456, tzinfo=UTC)),
        ("2026-02-19T15:00:00.5", datetime(2026, 2, 19, 18, 0, 0, 500000, tzinfo=UTC)),
        ("2026-02-19T15:00:00Z", datetime(2026, 2, 19, 15, tzinfo=UTC)),
        ("2026-02-19T15:00:00-0300", datetime(2026, 2, 19, 18, tzinfo=UTC)),
        ("2026-02-19 15:00", datetime(2026, 2, 19, 18, tzinfo=UTC)),
        ("2026-02-19", datetime(2026, 2, 19, 3, tzinfo=UTC)),
        ("24/09/2026 12:34:46", datetime(2026, 9, 24, 15, 34, 46, tzinfo=UTC)),
        ("24-09-2026", datetime(2026, 9, 24, 3, tzinfo=UTC)),
        ("0001-01-01T00:00:00", None),
        ("9999-12-31T23:59:59", None),
        ("2026-02-30T00:00:00", None),
        ("2026-02-19T24:00:00", None),
        ("19-02-2026 24:00", None),
        ("pronto", None),
        (None, None),
        (20260219, None),
    ],
)
def test_moment(reported: object, kept: datetime | None) -> None:
    """Every spelling met is read, naive ones as Santiago's time; placeholders and nonsense are nothing."""
    assert text.moment(reported) == kept


@pytest.mark.parametrize(
    ("reported", "kept"),
    [
        ("70.063,00", Decimal(70063)),
        ("6.700.000", Decimal(6700000)),
        ("$ 6.700.000", Decimal(6700000)),
        ("US$1.501,25", Decimal("1501.25")),
        ("1234.5", Decimal("1234.5")),
        (43050000, Decimal(43050000)),
        (Decimal("2500000.0"), Decimal(2500000)),
        (Decimal("123.456"), Decimal("123.46")),
        (Decimal("1.500"), Decimal("1.5")),
        (999, Decimal(999)),
        ("123.456", Decimal(123456)),
        (True, None),
        (10**18, None),
        (0, None),
        ("No público", None),
        ("Igual o superior a 5.000 UTM", None),
        ("", None),
    ],
)
def test_amount(reported: object, kept: Decimal | None) -> None:
    """Amounts are exact, with points or commas; thousands are a habit of texts, not of numbers; labels and nothings are none."""
    assert text.amount(reported) == kept


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        (b'\xef\xbb\xbf{"a": 1.10}', {"a": Decimal("1.10")}),
        ('{"a": "ñ"}'.encode("latin-1"), {"a": "ñ"}),
        (b'{"a": NaN}', {"a": None}),
        (b"", None),
        (b"<html>", None),
        (b"[" * 100_000, None),
        (b"9" * 5_000, None),
    ],
)
def test_loads(body: bytes, kept: object) -> None:
    """JSON is read with exact numbers, with a byte order mark or in Latin-1; what is none is None."""
    assert text.loads(body) == kept


def test_codes() -> None:
    """Codes stay text, each once, in their order."""
    assert text.codes([72141003, "72141000", "72141003 ", "45233130.0", "45233162-2", None, {}]) == (
        "72141003",
        "72141000",
        "45233130",
        "45233162-2",
    )
