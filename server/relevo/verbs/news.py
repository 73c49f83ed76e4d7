"""Verbs about news: subscribe to what comes of events, deliveries and phones, read it, and say how far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relevo.access import news_names
from relevo.client import news
from relevo.core import queries
from relevo.core.errors import NotFoundError, UsageError
from relevo.database.pool import Connection
from relevo.verbs.callers import Caller

_SQL = queries.load("subscriptions")


def subscribe(caller: Caller, name: str, asked: Mapping[str, Any]) -> bool:
    """Subscribe to news, or change a subscription; a caller of one project has the news of that project alone."""
    project = caller.own_project(asked.get("project"))
    with caller.acting("subscribe_news", subscription=name, project=project) as act:
        return news_names.subscribe(act.connection, name, caller.project, asked)


def read(caller: Caller, name: str, after: int | None, limit: int) -> list[news.Outcome]:
    """Read a subscription's next news; for a caller of one project, another's is not there."""
    with caller.database.transaction() as connection:
        return news.read_news(connection, _find(connection, caller, name), after=after, limit=limit)


def acknowledge(caller: Caller, name: str, position: int) -> bool:
    """Acknowledge a subscription's news up to a position; False if they were acknowledged before."""
    with caller.acting("acknowledge_news", subscription=name, position=position) as act:
        return act.answer(news.acknowledge_news(act.connection, _find(act.connection, caller, name), position))


def pause(caller: Caller, name: str, *, paused: bool = True) -> None:
    """Stop handing out a subscription's news, which are kept up to NEWS_BACKLOG_LIMIT; or go on from where it stood."""
    _change(caller, "pause_subscription", name, paused=paused)


def remove(caller: Caller, name: str) -> None:
    """End a subscription and forget its news."""
    _change(caller, "remove_subscription", name)


def _change(caller: Caller, statement: str, name: str, **more: Any) -> None:
    with caller.acting(statement, subscription=name, **more) as act:
        if act.connection.execute(_SQL[statement], {"name": name} | more).fetchone() is None:
            raise UsageError(f"There is no subscription {name[:50]}.", hint="`relevo news list` names them.")


def _find(connection: Connection, caller: Caller, name: str) -> str:
    """Return under which name a caller's subscription is stored."""
    stored = news_names.stored_name(connection, name, caller.project)
    if stored is None:
        raise NotFoundError(f"There is no subscription {name[:50]}.", hint="Subscribe first: PUT /v1/news/NAME.")
    return stored
