"""What callers do about one phone."""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from relevo.app import App
from relevo.client import verbs
from relevo.client.values import Installation
from relevo.operators import audit
from relevo.verbs import phones
from relevo.verbs.callers import operator


def test_a_log_out_is_recorded_with_its_answer(build: Callable[..., App], conn: psycopg.Connection) -> None:
    """The audit log says whether the phone that an operator logged out was registered until then."""
    database = build().database
    phone = verbs.register(conn, Installation("ExponentPushToken[a]"))
    answers = [phones.log_out(operator(database), phone) for _ in range(2)]
    entries = audit.latest(database, action="log_out_installation")
    assert answers == [True, False]
    assert [entry["result"] for entry in reversed(entries)] == [{"answer": True}, {"answer": False}]
