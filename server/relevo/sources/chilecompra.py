"""ChileCompra's API: one list of summaries a day, one detail a tender, in one serial quota per ticket."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import Any, Literal
from uuid import uuid4

import structlog
from pydantic import SecretStr

from relevo.config import MINUTE, Settings
from relevo.core.items import Fetched, Item, Reject
from relevo.core.ports import SourceContext
from relevo.sources import chile, text
from relevo.sources.chilecompra_rows import TELLER, Summary, read_detail, read_summary
from relevo.sources.http import Closed, Http, Response, TimeOver, Trouble, take_turn
from relevo.sources.merging import mark_of

_log = structlog.get_logger("relevo.sources.chilecompra")

DETAILS_PER_FETCH = 25
ITEMS_PER_FETCH = 500
LISTS_PER_FETCH = 5
RETRIES_PER_FETCH = 5
MAX_PACE_MS = MINUTE
_UNFINISHED_LASTS = timedelta(hours=1)
_MOST_LISTS = 2  # today's, and that of the day that is caught up
_TRIES = 4
_LONGEST_WAIT_MS = MINUTE
_RECOVERY = 0.95
_DOWN_IN_A_ROW = 3
_MAX_FAILED = 1_000
_MAX_GIVEN_UP = 60
_REFUSED_FOR = timedelta(days=5)
_FIRST_PAUSE, _LONGEST_PAUSE = timedelta(minutes=10), timedelta(hours=6)
_TENDER = frozenset({"CodigoExterno"})
_OK, _NON_AUTHORITATIVE, _BAD_REQUEST, _TOO_MANY, _ERROR = 200, 203, 400, 429, 500
_DENIED = (401, 403)


class ChileCompra:
    """The register of Chile's public tenders, asked with a ticket."""

    name = "chilecompra"

    def __init__(self, settings: Settings) -> None:
        self._api = _Api(settings)
        self._catchup = timedelta(days=settings.ingest_catchup_days)
        self.seeds_silently = not settings.ingest_notify_first_run
        self.interval_ms = (settings.chilecompra_interval_minutes or settings.worker_interval_minutes) * MINUTE
        self._lists = _Lists(timedelta(milliseconds=self.interval_ms))

    def fetch(self, cursor: Mapping[str, Any], context: SourceContext) -> Fetched:
        """Read today's list, what failed before, the days missed, and the details of what is new or changed."""
        if cursor.get("lists") != self._lists.mark:  # somebody else went on meanwhile
            self._lists.forget()
        fetched = _Pass(self._api, context, cursor, self._catchup, self._lists).run()
        if not fetched.more:
            self._lists.forget()
            return fetched
        return replace(fetched, cursor={**fetched.cursor, "lists": self._lists.mark})


class _Lists:
    """Lists of days whose details take several batches, so that each batch need not ask for them again.

    One that was gone through is good for an interval, for today's grows. A process that starts anew, or finds that
    another one went on, asks again: the cursor has the mark of whose lists it goes on with.
    """

    def __init__(self, interval: timedelta) -> None:
        self._interval = interval
        self._held: dict[date, tuple[datetime, list[Any]]] = {}
        self._done: set[date] = set()
        self.mark = uuid4().hex[:8]

    def find(self, day: date, now: datetime) -> list[Any] | None:
        """Return the rows of a day that were read lately."""
        read_at, rows = self._held.get(day, (now, None))
        return rows if now - read_at < (self._interval if day in self._done else _UNFINISHED_LASTS) else None

    def done(self, day: date) -> None:
        """Note that a day's list was gone through."""
        self._done.add(day)

    def keep(self, day: date, now: datetime, rows: list[Any]) -> None:
        """Keep the rows of a day; of many days, the latest read."""
        self._held.pop(day, None)
        self._done.discard(day)
        self._held[day] = now, rows
        while len(self._held) > _MOST_LISTS:
            self._held.pop(next(iter(self._held)))

    def forget(self) -> None:
        """Forget them: a pass is over, and the next one asks for what is new."""
        self._held.clear()
        self._done.clear()
        self.mark = uuid4().hex[:8]


class _Stop(Closed):
    """No further request makes sense in this batch."""


class _Refused(Trouble):
    """This request was refused, though it is well-formed: the server's fault, which may last for days."""


class _Api:
    """Asks one request at a time, at the quota's pace, and understands every way to say no."""

    def __init__(self, settings: Settings) -> None:
        self._http = Http(settings)
        self._address = f"{settings.chilecompra_base_url.rstrip('/')}/licitaciones.json"
        self._ticket = settings.chilecompra_ticket or SecretStr("none")
        self.quota = f"chilecompra-{hashlib.sha256(self._secret().encode()).hexdigest()[:12]}"
        self._pace_ms = settings.chilecompra_pace_ms
        self._daily_limit = settings.chilecompra_daily_limit

    def ask(self, context: SourceContext, **query: str) -> list[Any]:
        """Return the list that answers the query, or raise Trouble."""
        for _ in range(_TRIES):
            present_ms = context.pace_ms(self.quota, self._pace_ms)
            pace_ms = max(present_ms, self._pace_ms)
            take_turn(context, self.quota, pace_ms=pace_ms, daily_limit=self._daily_limit)
            reply = self._http.get(self._address, {**query, "ticket": self._secret()})
            said = judge(reply)
            if said.kind == "ok":
                # Back towards the chosen pace, a little after each answer.
                wanted_ms = max(self._pace_ms, int(pace_ms * _RECOVERY))
                if wanted_ms != present_ms:
                    context.slow_down(self.quota, pace_ms=wanted_ms)
                return said.rows
            if said.kind != "busy":
                raise _trouble(said.kind, said.detail.replace(self._secret(), "***"))
            pace_ms = min(max(pace_ms * 2, 1_000), max(MAX_PACE_MS, self._pace_ms))
            pause_ms = max(reply.retry_after_ms(), pace_ms)
            context.slow_down(self.quota, pace_ms=pace_ms, pause_ms=pause_ms)
            if pause_ms > _LONGEST_WAIT_MS:
                raise _Stop("unavailable", f"it asks to wait {pause_ms // 1_000} s")
        raise _Stop("unavailable", f"it complains of too many requests, {_TRIES} times in a row")

    def _secret(self) -> str:
        return self._ticket.get_secret_value()


@dataclass(frozen=True)
class Said:
    """The meaning of an answer of the API."""

    kind: Literal["ok", "ticket", "busy", "wrong", "down"]
    rows: list[Any] = field(default_factory=list)
    detail: str = ""


def judge(reply: Response) -> Said:
    """Distinguish a list from each form of refusal; an answer that is no list is never an empty one."""
    document = text.loads(reply.body)
    if not isinstance(document, dict):
        return _judge_status(reply, _first_words(reply.body))
    number, message = text.clean(document.get("Codigo"), 20), text.clean(document.get("Mensaje"), 200)
    if number and message:
        return _judge_code(reply, number, message)
    if reply.status in (_OK, _NON_AUTHORITATIVE) and "Listado" in document:
        listed = document["Listado"]
        rows = list(_rows(listed))
        if not rows and chile.state_number(document.get("Cantidad")):
            return Said("down", detail="it counts tenders but lists none")
        if listed is None:
            return Said("down", detail="it says null where a list was to be: no proof that there is none")
        return Said("ok", rows)
    return _judge_status(reply, message or "")


def _judge_code(reply: Response, number: str, message: str) -> Said:
    said, words = f"{number} {message}", message.casefold()
    if number == "203":
        return Said("ticket", detail=said)
    if number == "10500" or "simult" in words:
        return Said("busy", detail=said)
    if number == "10300" or "mes inv" in words:
        return Said("wrong", detail=said)
    return _judge_status(reply, said)


def _judge_status(reply: Response, said: str) -> Said:
    detail = f"HTTP {reply.status} {said}".strip()
    if reply.status == _NON_AUTHORITATIVE or reply.status in _DENIED:
        return Said("ticket", detail=detail)
    if reply.status == _TOO_MANY:
        return Said("busy", detail=detail)
    if reply.status == _BAD_REQUEST or (reply.status == _ERROR and "mes inv" in said.casefold()):
        return Said("wrong", detail=detail)
    if reply.status == _OK:
        return Said("down", detail="the answer is no list" if reply.body else "the answer is empty")
    return Said("down", detail=detail)


def _first_words(body: bytes) -> str:
    return text.clean(re.sub(r"<[^>]*>?", " ", body[:400].decode("utf-8", "replace")), 80) or ""


def _rows(listed: object) -> Iterator[Any]:
    """Yield the entries of a list, also of one that a translation from XML has wrapped."""
    if isinstance(listed, list):
        yield from listed
    else:
        yield from text.within(listed, _TENDER)


def _trouble(kind: str, detail: str) -> Trouble:
    if kind == "ticket":
        _log.error(
            "chilecompra_request_refused", detail=detail, hint="check CHILECOMPRA_TICKET; the next run tries again"
        )
        return _Stop("rejected", f"ChileCompra refuses our credential: {detail}")
    if kind == "wrong":
        return _Refused("rejected", f"ChileCompra refuses a well-formed request: {detail}")
    return Trouble("unavailable", detail)


class _Pass:
    """One bounded batch.

    The cursor holds `complete`, the last day read on a later day; `failed`, the details that went wrong on days not
    complete yet, so that they wait for their retry; `missing`, days whose list was refused: since when, how often, and
    when it is asked for again; and `given_up`, days that were refused for too long.
    """

    def __init__(
        self, api: _Api, context: SourceContext, cursor: Mapping[str, Any], catchup: timedelta, lists: _Lists
    ) -> None:
        self._api = api
        self._lists = lists
        self._context = context
        self._given = cursor
        self._now = context.now()
        self._today = self._now.astimezone(text.SANTIAGO).date()
        yesterday = self._today - timedelta(days=1)
        last = _day(cursor.get("complete")) or yesterday
        self._complete = min(max(last, yesterday - catchup), yesterday)
        self._failed: dict[str, list[str]] = dict(cursor.get("failed") or {})
        self._missing = {day: list(entry) for day, entry in (cursor.get("missing") or {}).items()}
        self._given_up: list[str] = list(cursor.get("given_up") or [])
        self._items: dict[str, Item] = {}
        self._rejects: dict[str, Reject] = {}
        self._resolved: list[str] = []
        self._seen: dict[str, None] = {}
        self._details_left = DETAILS_PER_FETCH
        self._lists_left = LISTS_PER_FETCH
        self._down = 0
        self._held: Trouble | None = None

    def run(self) -> Fetched:
        """Work until the batch is full, all is read, or trouble stops it."""
        try:
            more = self._work()
        except Trouble as trouble:
            if not isinstance(trouble, TimeOver):
                self._lists.forget()  # the next batch begins with a list, which tells whether it is over
            return self._answer(trouble, more=True)
        return self._answer(self._held, more=more)

    def _work(self) -> bool:
        summaries = self._list(self._today)
        self._retry({each.code: each for each in summaries or ()})
        if not self._take(summaries, self._today):
            return True
        while (day := self._complete + timedelta(days=1)) < self._today:
            if self._lists_left <= 0 or not self._details_left or not self._take(self._list(day), day):
                return True
            self._complete = day
        return not self._read_missing()

    def _read_missing(self) -> bool:
        """Read the lists of earlier days that were refused and are due again; False if the batch is full before."""
        for day in [found for name in sorted(self._missing) if (found := _day(name)) and found <= self._complete]:
            if not self._is_due(day):
                continue
            if self._lists_left <= 0 or not self._details_left or not self._take(self._list(day), day):
                return False
        return True

    def _is_due(self, day: date) -> bool:
        entry = self._missing.get(day.isoformat())
        return entry is None or str(entry[2]) <= self._now.isoformat()

    def _list(self, day: date) -> list[Summary] | None:
        """Return the summaries of a day; None if its list is refused, and asked for again later, for some days."""
        if not self._is_due(day):
            self._hold(day, "its list was refused, and is asked for again later")
            return None
        rows = self._lists.find(day, self._now)
        if rows is None:
            self._lists_left -= 1
            try:
                rows = self._api.ask(self._context, fecha=f"{day:%d%m%Y}")
            except _Refused as refused:
                self._miss(day, refused.detail)
                return None
            self._lists.keep(day, self._now, rows)
        return list(self._read(rows, day))

    def _miss(self, day: date, why: str) -> None:
        """Note that a day's list was refused: our dates are right, so the server may think better of it."""
        name, place = day.isoformat(), f"fecha={day:%d%m%Y}"
        since, tries, _ = self._missing.get(name) or [self._now.isoformat(), 0, ""]
        if self._now - datetime.fromisoformat(since) > _REFUSED_FOR:
            self._missing.pop(name, None)
            self._given_up = [*(each for each in self._given_up if each != name), name][-_MAX_GIVEN_UP:]
            self._reject(place, f"given up after {tries + 1} tries over {_REFUSED_FOR.days} days: {why}")
            return
        pause = min(_FIRST_PAUSE * 2 ** min(tries, 10), _LONGEST_PAUSE)
        self._missing[name] = [since, tries + 1, (self._now + pause).isoformat()]
        self._reject(place, why)
        self._hold(day, why)

    def _find(self, day: date) -> None:
        """Note that a day's list was read after all, to its end."""
        name = day.isoformat()
        if self._missing.pop(name, None) is not None or name in self._given_up:
            self._given_up = [each for each in self._given_up if each != name]
            self._resolved.append(f"fecha={day:%d%m%Y}")

    def _hold(self, day: date, why: str) -> None:
        if day == self._today:
            self._held = _Refused("rejected", f"fecha={day:%d%m%Y}: {why}")

    def _read(self, rows: Sequence[object], day: date) -> Iterator[Summary]:
        for row in rows:
            summary = read_summary(row)
            if summary:
                yield summary
                continue
            place = f"fecha={day:%d%m%Y} fila={hashlib.sha256(repr(row).encode()).hexdigest()[:8]}"
            if place not in self._failed:
                self._failed[place] = ["", day.isoformat()]
                self._reject(place, "a row without a tender's code")

    def _take(self, summaries: Sequence[Summary] | None, day: date) -> bool:
        """Take what is new or changed; False if the batch is full before the list is through."""
        if summaries is None:
            return True
        listed = {each.code: each for each in summaries}
        known = self._context.known(chile.NAMESPACE, list(listed)) if listed else {}
        changed = [each for each in listed.values() if mark_of(known.get(each.code, ""), TELLER) != each.mark]
        # A tender that closes or is withdrawn costs no request; one that was never seen open is of no interest.
        for each in changed:
            if each.code in known and each.code not in self._items and not each.is_open(self._now):
                if len(self._items) >= ITEMS_PER_FETCH:
                    return False
                self._items[each.code] = each.item(self._now)
        for each in changed:
            if each.code in self._items or not each.is_open(self._now) or self._waits(each):
                continue
            if not self._details_left or len(self._items) >= ITEMS_PER_FETCH:
                return False
            self._details_left -= 1
            self._detail(each.code, each.mark, day)
        self._find(day)
        self._lists.done(day)
        return True

    def _waits(self, summary: Summary) -> bool:
        return self._failed.get(summary.code, [""])[0] == summary.mark

    def _detail(self, code: str, known_mark: str | None, day: date) -> bool:
        """Fetch one detail; one that fails is kept for later and does not stop the rest."""
        try:
            item = self._ask_detail(code, known_mark)
        except Closed:
            raise
        except Trouble as trouble:
            self._fail(code, known_mark, day, trouble)
            return False
        self._down = 0
        self._failed.pop(code, None)
        self._items[code] = item
        return True

    def _ask_detail(self, code: str, known_mark: str | None) -> Item:
        rows = self._api.ask(self._context, codigo=code)
        for row in rows:
            item = read_detail(row, self._now, known_mark) if isinstance(row, dict) else None
            if item and item.external_id == code:
                return item
        raise Trouble("unavailable", "the answer does not hold this tender")

    def _fail(self, code: str, known_mark: str | None, day: date, trouble: Trouble) -> None:
        self._failed[code] = [known_mark or "", day.isoformat()]
        self._seen[code] = None
        self._reject(f"codigo={code}", trouble.detail, external_id=code, retry=True)
        self._down = 0 if isinstance(trouble, _Refused) else self._down + 1
        if self._down >= _DOWN_IN_A_ROW:
            raise _Stop("unavailable", f"{self._down} details in a row: {trouble.detail}")

    def _retry(self, today: Mapping[str, Summary]) -> None:
        """Try again what failed earlier and is due."""
        for due in self._context.rejects_due(RETRIES_PER_FETCH):
            field_, _, value = due.place.partition("=")
            day = _day(f"{value[4:8]}-{value[2:4]}-{value[:2]}") if field_ == "fecha" else None
            if field_ == "codigo" and chile.tender_code(value) == value:
                known_mark = today[value].mark if value in today else self._failed.get(value, [None])[0]
                if self._detail(value, known_mark or None, self._today):
                    self._resolved.append(due.place)
            elif day and len(value) == len("ddmmaaaa"):
                self._retry_day(day, due.place)
            else:
                self._reject(due.place, due.reason)

    def _retry_day(self, day: date, place: str) -> None:
        """Ask for a day's list at once, because somebody wishes it."""
        entry = self._missing.setdefault(day.isoformat(), [self._now.isoformat(), 0, ""])
        entry[2] = ""
        if not self._take(self._list(day), day) or place in self._rejects:
            return
        self._resolved += [place] if place not in self._resolved else []
        self._held = None if day == self._today else self._held

    def _reject(self, place: str, reason: str, *, external_id: str | None = None, retry: bool = False) -> None:
        self._rejects[place] = text.reject(place, reason, external_id=external_id, retry=retry)

    def _answer(self, trouble: Trouble | None, *, more: bool) -> Fetched:
        """Trouble after something was gathered is told next time: what was gathered is worth keeping first."""
        gathered, cursor = bool(self._items or self._resolved), self._cursor()
        outcome: Literal["ok", "unchanged", "unavailable", "rejected"]
        if isinstance(trouble, TimeOver):
            outcome = "ok" if self._items else "unchanged"
        elif trouble and trouble is self._held and not gathered:
            outcome = trouble.outcome
        elif trouble and not gathered and not self._rejects:
            outcome, cursor, more = trouble.outcome, dict(self._given), False
        else:
            more = more or trouble is not None
            outcome = "ok" if gathered or self._rejects or more else "unchanged"
        return Fetched(
            outcome,
            cursor,
            items=tuple(self._items.values()),
            rejects=tuple(self._rejects.values()),
            resolved=tuple(self._resolved),
            detail=trouble.detail[:500] if trouble else "",
            more=more,
            seen=tuple((chile.NAMESPACE, code) for code in self._seen if code not in self._items),
            problems=tuple(
                f"the list of {day} was refused for {_REFUSED_FOR.days} days and given up; "
                "`relevo rejects --retry` asks for it again"
                for day in self._given_up
            ),
            incomplete=bool(self._missing),
        )

    def _cursor(self) -> dict[str, Any]:
        upto = self._complete.isoformat()
        failed = {code: entry for code, entry in self._failed.items() if entry[1] > upto}
        cursor: dict[str, Any] = {"complete": upto}
        if failed:
            cursor["failed"] = dict(list(failed.items())[-_MAX_FAILED:])
        if self._missing:
            cursor["missing"] = self._missing
        if self._given_up:
            cursor["given_up"] = self._given_up
        return cursor


def _day(value: object) -> date | None:
    try:
        return date.fromisoformat(str(value))
    except ValueError:
        return None
