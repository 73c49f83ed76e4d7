"""The month that tests retire, where its deliveries lie before and after, and its seal."""

from __future__ import annotations

from typing import Any

import psycopg

from support.old_months import month_ago

OLD, RECENT = month_ago(5), month_ago(2)
HOT = f"relevo.notification_deliveries_{OLD:%Y_%m}"
COLD = f"relevo_archive.notification_deliveries_{OLD:%Y_%m}"


def seal(conn: psycopg.Connection[Any]) -> bool:
    """Seal the old month; tell whether it could be."""
    row = conn.execute("select relevo.seal_month('notification_deliveries', %s, 1000)", [OLD]).fetchone()
    assert row is not None
    return bool(row[0])
