"""Ingest: what a source returns becomes items and events; registry, item, event and cursor commit together."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal
from hashlib import md5
from typing import Any, NoReturn

import psycopg
import structlog
from psycopg import errors as pg
from psycopg.rows import class_row, dict_row
from psycopg.types.json import Jsonb

from relevo.config import REJECT_ATTEMPTS, Settings
from relevo.core import queries
from relevo.core.i18n import N_
from relevo.core.items import Fetched, Item, News, Reject
from relevo.core.logs import normalise_error, scrub
from relevo.core.model import Step
from relevo.core.ports import NoRequestsLeft, OutOfTime, Renderer, Source
from relevo.cycles import Assembled
from relevo.database.pool import Connection
from relevo.runtime.cycle_facts import CycleFacts
from relevo.runtime.runs import Cycle, Run
from relevo.runtime.timing import Every
from relevo.sources.merging import merge

FACTS = CycleFacts(
    "ingest",
    does="reads a source and writes its items, their events and the place where it stopped in one transaction",
    counts={
        "licitaciones_found": "items that the source returned",
        "licitaciones_new": "items that were not known",
        "licitaciones_changed": "known items that changed",
        "events_created": "events made of these items",
        "events_cancelled": "events cancelled, because their item is closed or withdrawn",
        "rejected": "items that Relevo could not use",
        "mended": "items that Relevo could not use before and can use now",
    },
    after="reaper",
    singleton=True,
    by_source=True,
    paused=N_("%(who)s paused the reading of sources."),
    resumed=N_("%(who)s resumed the reading of sources after %(time)s."),
)
_SQL = queries.load("ingest")
_log = structlog.get_logger("relevo.ingest")

EVENT_TYPE = "new_licitacion"
_MAX_TEXT = 20_000
_MAX_KEY = 300
_PATIENCE_MS = 120_000
_MAX_PROBLEMS = 20
_WITHDRAWN, _CLOSED = "the tender was withdrawn", "the tender is no longer open"
# Errors of the database or the driver that an item's content causes.
_REFUSED = (psycopg.DataError, psycopg.IntegrityError, ValueError)

Key = tuple[str, str]


def event_type_of(source: Source) -> str:
    """Return the type of the events that a source's items become."""
    return str(getattr(source, "event_type", EVENT_TYPE))


def cycles(given: Assembled) -> list[Cycle]:
    """Return the ingest of each source that is read."""
    return [cycle(given.settings, source, render) for source, render in given.sources]


def cycle(settings: Settings, source: Source, render: Renderer) -> Cycle:
    """Return the ingest of one source for the schedule: one in the fleet, once per slot."""
    timing = Every(source.interval_ms)
    stall_ms = 3 * max(settings.outbox_lease_duration_ms, settings.http_timeout_ms)  # one request may take that long

    def step(run: Run) -> Step:
        return Ingest(run, source, render).step()

    return Cycle.of(FACTS, timing, step, source=source.name, stall_ms=stall_ms)


@dataclass(frozen=True)
class Ingest:
    """One step of one source: ask outside any transaction, then write everything in one."""

    run: Run
    source: Source
    render: Renderer

    @property
    def event_type(self) -> str:
        """The type of the events its items become."""
        return event_type_of(self.source)

    def step(self) -> Step:
        """Fetch the next batch and commit it with its cursor."""
        run = self.run
        with run.transaction() as connection, connection.cursor(row_factory=dict_row) as cursor:
            state = cursor.execute(_SQL["read_source"], {"source": self.source.name}).fetchone()
        assert state is not None
        fetched = self.source.fetch(state["cursor"], DatabaseSourceContext(run, self.source.name))
        with run.transaction() as connection:
            counts = self._write(connection, fetched, state["seeded_at"])
        return self._step(fetched, counts)

    def _write(self, connection: Connection, fetched: Fetched, seeded_at: datetime | None) -> dict[str, int]:
        counts = Counter({"licitaciones_found": len(fetched.items)})
        if fetched.items:
            items = [each.as_item() if isinstance(each, News) else each for each in fetched.items]
            counts += self._write_items(connection, items, seeded_at)
        if fetched.seen:  # what is there and could not be read is no news when it can be
            connection.execute(_SQL["claim_registry"], _keys(fetched.seen) | {"source": self.source.name})
        counts += self._write_rejects(connection, fetched)
        first_pass_over = fetched.outcome in ("ok", "unchanged") and not fetched.more and not fetched.incomplete
        saved = {
            "source": self.source.name,
            "cursor": Jsonb(dict(fetched.cursor)),
            "seeded": first_pass_over,
            "silent": self.source.seeds_silently,
            "outcome": fetched.outcome,
            "detail": scrub(fetched.detail),
            "news": bool(counts["licitaciones_new"] or counts["licitaciones_changed"]),
            "problems": [scrub(problem)[:300] for problem in fetched.problems[:_MAX_PROBLEMS]],
            "now": self.run.now,
        }
        connection.execute(_SQL["save_source"], saved)
        return dict(counts)

    def _write_items(self, connection: Connection, items: Sequence[Item], seeded_at: datetime | None) -> Counter[str]:
        """Write all items at once; if the database refuses something, one by one, so that it refuses that alone."""
        try:
            with connection.transaction():
                return Counter(self._write_batch(connection, items, seeded_at))
        except _REFUSED as error:
            if len(items) > 1:
                return sum((self._write_items(connection, [item], seeded_at) for item in items), Counter[str]())
            refused = Reject(f"item {items[0].namespace}:{items[0].external_id}", normalise_error(error))
            return self._write_rejects(connection, Fetched("ok", {}, rejects=(refused,)))

    def _write_batch(self, connection: Connection, items: Sequence[Item], seeded_at: datetime | None) -> dict[str, int]:
        offered = {(item.namespace, item.external_id): item for item in items}
        keys = _keys(offered) | {"source": self.source.name, "now": self.run.now}
        claimed = connection.execute(_SQL["claim_registry"], keys).fetchall()
        with connection.cursor(row_factory=dict_row) as cursor:
            stored = {(row["namespace"], row["external_id"]): row for row in cursor.execute(_SQL["read_items"], keys)}
        merged = {key: merge(_item(stored[key]), item) if key in stored else item for key, item in offered.items()}
        saving = {"source": self.source.name, "items": Jsonb([_as_json(item) for item in merged.values()])}
        changed = {(row[1], row[2]): row[0] for row in connection.execute(_SQL["save_items"], saving)}
        ids: dict[Key, int] = {key: row["id"] for key, row in stored.items()} | changed
        events = self._announce(connection, merged, ids, seeded_at)
        known = {key: merged[key] for key in changed if key in stored}
        self._refresh(connection, known, ids)
        cancelled = self._cancel(connection, {ids[key]: item for key, item in merged.items() if key in stored})
        events += self._announce_again(connection, known, ids)
        return {
            "licitaciones_new": len(claimed),
            "licitaciones_changed": len(known),
            "events_created": events,
            "events_cancelled": cancelled,
        }

    def _cancel(self, connection: Connection, items: Mapping[int, Item]) -> int:
        """Cancel what is left of the events of tenders that are no longer open, whatever closed them."""
        closed = [item_id for item_id, item in items.items() if item.withdrawn or not item.announces]
        if not closed:
            return 0
        reasons = [_WITHDRAWN if items[item_id].withdrawn else _CLOSED for item_id in closed]
        asked = {"item_ids": closed, "reasons": reasons, "event_type": self.event_type}
        return connection.execute(_SQL["cancel_closed"], asked).rowcount

    def _announce_again(self, connection: Connection, items: Mapping[Key, Item], ids: Mapping[Key, int]) -> int:
        """Announce tenders that are open again to those who missed them when their event was cancelled."""
        now = _read_now(self.run, connection)
        reopened = {ids[key]: item for key, item in items.items() if _is_open(item, now)}
        if not reopened:
            return 0
        asked = {"item_ids": list(reopened), "event_type": self.event_type, "reasons": [_WITHDRAWN, _CLOSED]}
        rows = connection.execute(_SQL["find_cancelled"], asked).fetchall()
        created = 0
        for item_id, number, former in rows:
            event = self._event(reopened[item_id], item_id)
            event["key"] = f"{_shortened(event['key'], _MAX_KEY - 8)}#{number}"
            again = self._enqueue(connection, [event])
            if again:
                following = {"key": event["key"], "event_type": self.event_type, "former": former}
                connection.execute(_SQL["follow_events"], following)
            created += again
        return created

    def _announce(
        self, connection: Connection, items: Mapping[Key, Item], ids: Mapping[Key, int], seeded_at: datetime | None
    ) -> int:
        """Enqueue an event for each open item that was never announced, unless this is a silent first pass."""
        if self.source.seeds_silently and seeded_at is None:
            return 0
        now = _read_now(self.run, connection)
        open_items = {key: item for key, item in items.items() if _is_open(item, now)}
        marked = connection.execute(_SQL["mark_announced"], _keys(open_items) | {"seeded_at": seeded_at}).fetchall()
        events = [self._event(open_items[key], ids[key]) for key in ((row[0], row[1]) for row in marked)]
        return self._enqueue(connection, events) if events else 0

    def _enqueue(self, connection: Connection, events: list[dict[str, Any]]) -> int:
        """Enqueue in one statement; if an event is refused, let that one alone go unsaid, and keep why."""
        try:
            with connection.transaction():
                rows = connection.execute(_SQL["enqueue_events"], {"events": Jsonb(events)}).fetchall()
        except pg.DataError as error:
            if len(events) > 1:
                return sum(self._enqueue(connection, [event]) for event in events)
            data = events[0]["data"]
            refused = Reject(f"event {events[0]['key']}", normalise_error(error), data.get("codigo") or data.get("id"))
            self._write_rejects(connection, Fetched("ok", {}, rejects=(refused,)))
            return 0
        return sum(created for _, created in rows)

    def _refresh(self, connection: Connection, items: Mapping[Key, Item], ids: Mapping[Key, int]) -> None:
        rows = []
        for key, item in items.items():
            event = self._event(item, ids[key])
            rows.append(event | event["matching"])
        if rows:
            connection.execute(_SQL["refresh_events"], {"events": Jsonb(rows), "event_type": self.event_type})
            connection.execute(_SQL["move_deadlines"], {"events": Jsonb(rows), "event_type": self.event_type})

    def _event(self, item: Item, item_id: int) -> dict[str, Any]:
        title, body = self.render(item)
        if self.event_type == EVENT_TYPE:
            data = {"type": EVENT_TYPE, "licitacionId": item_id, "codigo": item.external_id}
        else:
            data = {"type": self.event_type, "itemId": item_id, "id": item.external_id, "link": item.url}
        return {
            "type": self.event_type,
            "key": _event_key(item),
            "licitacion_id": item_id,
            "title": title,
            "body": body,
            "data": data,
            "push": {"sound": "default", "priority": "high"},
            "audience": "matching",
            "deadline_at": item.cierra_at.isoformat() if item.cierra_at else None,
            "matching": {
                "rubros": list(item.rubros),
                "region": item.region,
                "tipo": item.tipo,
                "monto": _number(item.monto),
                "moneda": item.moneda,
                "text": f"{item.nombre} {item.descripcion or ''}"[:_MAX_TEXT],
            },
        }

    def _write_rejects(self, connection: Connection, fetched: Fetched) -> Counter[str]:
        rejects = {_place(reject.place): reject for reject in fetched.rejects}
        if rejects:
            kept = {
                "source": self.source.name,
                "places": list(rejects),
                "external_ids": [_plain(reject.external_id or "", 300) or None for reject in rejects.values()],
                "reasons": [_plain(reject.reason, 500) or "unusable" for reject in rejects.values()],
                "retries": [reject.retry for reject in rejects.values()],
                "most_attempts": REJECT_ATTEMPTS,
                "now": self.run.now,
            }
            connection.execute(_SQL["keep_rejects"], kept)
        if fetched.resolved:
            places = [_place(place) for place in fetched.resolved]
            mended = {"source": self.source.name, "places": places, "now": self.run.now}
            connection.execute(_SQL["resolve_rejects"], mended)
        return Counter(rejected=len(fetched.rejects), mended=len(fetched.resolved))

    def _step(self, fetched: Fetched, counts: dict[str, int]) -> Step:
        if fetched.outcome in ("unavailable", "rejected"):
            problem = f"{self.source.name} {fetched.outcome}: {scrub(fetched.detail)}"
            return Step(counts, items=len(fetched.items), problems=(problem,))
        items = len(fetched.items) + len(fetched.rejects) + len(fetched.resolved)
        return Step(counts, items=items, more=fetched.more)


@dataclass(frozen=True)
class DatabaseSourceContext:
    """The ingest cycle's services for a source, stored in tables so that restarts and replicas share them."""

    run: Run
    source: str

    def now(self) -> datetime:
        """Return the database's time."""
        self.run.progress()
        with self.run.database.connection() as connection:
            return _read_now(self.run, connection)

    def known(self, namespace: str, external_ids: Sequence[str]) -> Mapping[str, str]:
        """Return the fingerprints of the items that are stored already."""
        self.run.progress()
        asked = {"namespace": namespace, "external_ids": list(external_ids)}
        return dict(self.run.database.execute(_SQL["known_fingerprints"], asked).fetchall())

    def take_turn(self, quota: str, *, pace_ms: int, daily_limit: int) -> None:
        """Wait for this quota's next turn and count it."""
        if self.run.stopping.is_set() or not self.run.may_go_on():
            raise OutOfTime("this run's time is over")
        asked = {
            "quota": quota,
            "pace_ms": pace_ms,
            "daily_limit": daily_limit,
            "timezone": self.run.settings.worker_timezone,
            "patience_ms": int(min(self.run.ms_left, _PATIENCE_MS)),
        }
        row = self.run.execute(_SQL["take_turn"], asked).fetchone()
        if row is None:
            self._refuse(quota, daily_limit)
        deadline = time.monotonic() + row[0]
        while (left := deadline - time.monotonic()) > 0:
            if not self.run.may_go_on():  # it raises if the lease was lost meanwhile
                raise OutOfTime("this run's time is over")
            self.run.stopping.wait(min(left, 0.5))

    def _refuse(self, quota: str, daily_limit: int) -> NoReturn:
        """Return why there is no turn: the day is spent, the quota rests for long, or this run is too short to wait."""
        asked = {"quota": quota, "timezone": self.run.settings.worker_timezone}
        spent, rests_s = self.run.database.execute(_SQL["read_quota"], asked).fetchone() or (0, 0.0)
        if spent >= daily_limit:
            raise NoRequestsLeft(f"today's {daily_limit} requests are spent")
        if rests_s * 1000 > _PATIENCE_MS:
            raise NoRequestsLeft(f"it asked to be left alone for {rests_s:.0f} s more")
        raise OutOfTime("the next turn comes after this run's time")

    def slow_down(self, quota: str, *, pace_ms: int, pause_ms: int = 0) -> None:
        """Set the quota's pace for the whole fleet, and let nobody ask before the pause is over."""
        self.run.execute(_SQL["slow_down"], {"quota": quota, "pace_ms": pace_ms, "pause_ms": pause_ms})

    def pace_ms(self, quota: str, default_ms: int) -> int:
        """Return the quota's present pace."""
        self.run.progress()
        row = self.run.database.execute(_SQL["read_pace"], {"quota": quota}).fetchone()
        return int(row[0]) if row else default_ms

    def rejects_due(self, limit: int) -> Sequence[Reject]:
        """Return this source's rejects that are due to be tried again."""
        self.run.progress()
        asked = {"source": self.source, "limit": limit, "now": self.run.now}
        with self.run.database.connection() as connection, connection.cursor(row_factory=class_row(Reject)) as cursor:
            return cursor.execute(_SQL["rejects_due"], asked).fetchall()


def _read_now(run: Run, connection: Connection) -> datetime:
    row = connection.execute(_SQL["read_now"], {"now": run.now}).fetchone()
    assert row is not None
    now: datetime = row[0]
    return now


def _is_open(item: Item, now: datetime) -> bool:
    return item.announces and not item.withdrawn and (item.cierra_at is None or item.cierra_at > now)


def _event_key(item: Item) -> str:
    """Return the key of an item's event: no two items have the same, whatever their names hold."""
    namespace = item.namespace.replace("%", "%25").replace(":", "%3A")
    key = f"{namespace}:{item.external_id.replace('%', '%25').replace('#', '%23')}"
    return _shortened(key, _MAX_KEY)


def _shortened(key: str, most: int) -> str:
    """Return a key of at most so many characters; of a longer one the end is a hash of the whole."""
    if len(key) <= most:
        return key
    return f"{key[: most - 33]}:{md5(key.encode(), usedforsecurity=False).hexdigest()}"


def _number(amount: Decimal | None) -> int | float | None:
    """Write an amount as JSON can: a whole one exactly, however large."""
    if amount is None:
        return None
    return int(amount) if amount == amount.to_integral_value() else float(amount)


def _place(place: str) -> str:
    return _plain(place, 1_000) or "somewhere"


def _plain(said: str, limit: int) -> str:
    """Return what a source said as text that can be stored, whatever it holds and however long it is."""
    text = said[: 2 * limit].encode("utf-8", "replace").decode()
    return " ".join(scrub(text).split())[:limit]


def _keys(keys: Collection[Key]) -> dict[str, Any]:
    return {"namespaces": [namespace for namespace, _ in keys], "external_ids": [name for _, name in keys]}


def _item(row: Mapping[str, Any]) -> Item:
    known = {name: value for name, value in row.items() if name != "id"}
    return Item(**known | {"rubros": tuple(row["rubros"])})


def _as_json(item: Item) -> dict[str, Any]:
    plain = asdict(item)
    for name in ("publicada_at", "cierra_at", "as_of"):
        plain[name] = plain[name].isoformat() if plain[name] else None
    plain["monto"] = str(item.monto) if item.monto is not None else None
    return plain
