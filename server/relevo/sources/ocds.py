"""Open Contracting data of any country: release and record packages and bare releases, from an address or a folder."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit

from relevo.config import MINUTE, Settings
from relevo.core.items import Fetched, Item, Reject
from relevo.core.ports import SourceContext
from relevo.sources import chile, text
from relevo.sources.files import DropFolder, DroppedFile, Look
from relevo.sources.http import Closed, Http, Response, TimeOver, Trouble, take_turn
from relevo.sources.merging import mark_of, merge
from relevo.sources.ocds_releases import TELLER, Reader, direction, links

QUOTA = "ocds"
PACE_MS = 500
DAILY_LIMIT = 100_000
PAGES_PER_FETCH = 5
LINKS_PER_FETCH = 25
ITEMS_PER_FETCH = 500
FILES_PER_FETCH = 100
MAX_PAGES = 10_000
MAX_BAD = 500
MAX_STUCK = 3
RETRIES_PER_FETCH = 5
_OK, _NOT_MODIFIED, _BAD_REQUEST, _DENIED, _FORBIDDEN, _ERROR = 200, 304, 400, 401, 403, 500
_SUFFIXES = (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz")
_GZIP = b"\x1f\x8b"
_KEY = re.compile(r"key|token|secret|pass|ticket|auth|sig", re.IGNORECASE)


class Ocds:
    """A publisher of OCDS packages."""

    name = "ocds"

    def __init__(self, settings: Settings) -> None:
        self._reader = Reader(settings.ocds_namespace)
        self._door: _Web | _Folder
        if settings.ocds_folder:
            self._door = _Folder(settings, settings.ocds_folder, self._reader)
        else:
            self._door = _Web(settings, self._reader)
        self.seeds_silently = not settings.ingest_notify_first_run
        self.interval_ms = (settings.ocds_interval_minutes or settings.worker_interval_minutes) * MINUTE

    def fetch(self, cursor: Mapping[str, Any], context: SourceContext) -> Fetched:
        """Read the next pages, or the files that are new or changed."""
        return self._door.fetch(cursor, context)


@dataclass
class _Batch:
    """The gathered releases: one item per tender, only of new or changed ones."""

    context: SourceContext
    items: dict[tuple[str, str], Item] = field(default_factory=dict)
    rejects: list[Reject] = field(default_factory=list)
    resolved: list[str] = field(default_factory=list)
    incomplete: bool = False

    @cached_property
    def tried(self) -> Mapping[str, Reject]:
        """By place, the rejects that are tried again now: reported anew, or resolved."""
        return {due.place: due for due in self.context.rejects_due(RETRIES_PER_FETCH)}

    def add(self, items: Sequence[Item]) -> int:
        """Keep what the database does not hold yet; return how many that are."""
        news = 0
        for namespace in {item.namespace for item in items}:
            mine = [item for item in items if item.namespace == namespace]
            known = self.context.known(namespace, [item.external_id for item in mine])
            for item in mine:
                if _is_news(mark_of(known.get(item.external_id, ""), TELLER), item.fingerprint):
                    self._keep(item)
                    news += 1
        return news

    def _keep(self, item: Item) -> None:
        key = (item.namespace, item.external_id)
        tellings = [each for each in (self.items.get(key), item) if each]
        older, *newer = sorted(tellings, key=lambda each: _minute(each.fingerprint))
        self.items[key] = merge(older, newer[0]) if newer else older

    def fetched(self, cursor: Mapping[str, Any], *, more: bool, detail: str = "") -> Fetched:
        """Return what was gathered as an answer."""
        busy = bool(self.items or self.rejects or self.resolved or more)
        outcome: Literal["ok", "unchanged"] = "ok" if busy else "unchanged"
        return Fetched(
            outcome,
            cursor,
            tuple(self.items.values()),
            tuple(self.rejects),
            tuple(self.resolved),
            detail[:500],
            more,
            incomplete=self.incomplete,
        )


def _is_news(stored: str | None, new: str) -> bool:
    """Return whether a telling is not known yet; an older one than the stored is no news."""
    return stored is None or (stored != new and (_minute(stored) <= _minute(new) or _minute(new) == _UNDATED))


_UNDATED = f"{TELLER}:00000000"


def _minute(own_mark: str) -> str:
    return own_mark.partition(".")[0]


@dataclass(frozen=True)
class _Page:
    """The contents of one page."""

    address: str
    place: str
    items: list[Item]
    rejects: list[Reject]
    links: list[tuple[str, str]]
    following: str | None
    next_is_broken: bool
    direction: int


def _note_bad(bad: Sequence[Reject], place: str, state: dict[str, Any], batch: _Batch) -> None:
    """Report what could not be used once, and what is mended; the state remembers what was reported."""
    before = set(state.get("bad") or [])
    here = {each.place: each for each in bad}
    batch.rejects += [reject for where, reject in here.items() if where not in before or where in batch.tried]
    mended = {each for each in before | batch.tried.keys() if each.partition("#")[0] == place} - here.keys()
    batch.resolved += sorted(mended)
    kept = [each for each in state.get("bad") or [] if each not in mended and each not in here]
    if remembered := [*kept, *here][-MAX_BAD:]:
        state["bad"] = remembered
    else:
        state.pop("bad", None)


class _Web:
    """Pages at an address.

    The cursor holds `next` (and `at`, how far in it) while a pass goes on, `from` where a feed that grows at its end
    is read next time, the validators of the first page, and the places that were `bad`.
    """

    def __init__(self, settings: Settings, reader: Reader) -> None:
        self._http = Http(settings)
        self._start = settings.ocds_url or ""
        self._reader = reader
        self._held: _Page | None = None
        """A page longer than a batch, read once; a process that starts anew asks for it again."""

    def fetch(self, cursor: Mapping[str, Any], context: SourceContext) -> Fetched:
        """Read some pages, or go on reading a long one."""
        batch, state = _Batch(context), dict(cursor)
        try:
            self._retry(state, batch)
            for _ in range(PAGES_PER_FETCH):
                if not self._page(state, batch):
                    return batch.fetched(_over(state), more=False)
                if len(batch.items) >= ITEMS_PER_FETCH or "at" in state:
                    break
        except TimeOver:
            return batch.fetched(state, more=True)
        except Trouble as trouble:
            if batch.items or batch.rejects or batch.resolved:
                return batch.fetched(state, more=True, detail=trouble.detail)
            return Fetched(trouble.outcome, _stuck(cursor), detail=trouble.detail[:500])
        return batch.fetched(state, more=True)

    def _page(self, state: dict[str, Any], batch: _Batch) -> bool:
        """Read the page at hand and move on; False when the pass is over."""
        here = state.get("next") or state.get("from") or self._start
        page = self._held if self._held and self._held.address == here and "at" in state else None
        page = page or self._read(here, state, batch.context)
        if page is None:
            return False
        start = int(state.pop("at", 0))
        _note_bad(page.rejects, page.place, state, batch)
        news = batch.add(page.items[start : start + ITEMS_PER_FETCH])
        self._held = None
        if start + ITEMS_PER_FETCH < len(page.items):
            self._held = page
            state |= {"at": start + ITEMS_PER_FETCH, "next": here}
            return True
        if page.links:
            return self._follow(page.links, state, here, batch)
        batch.incomplete = batch.incomplete or page.next_is_broken
        if _goes_round(state, page.following):
            batch.incomplete = True
            batch.rejects.append(text.reject(f"{page.place}#next", "its link to the next page leads back"))
            return False
        return self._turn_page(state, here, page.following, news, page.direction)

    def _read(self, here: str, state: dict[str, Any], context: SourceContext) -> _Page | None:
        """Ask for a page and read it whole; None if it has not changed."""
        opening = "next" not in state
        reply = self._ask(here, context, self._validators(state, here) if opening else {})
        if reply.status == _NOT_MODIFIED:
            return None
        document = _document(reply)
        state.pop("stuck", None)
        if opening:
            state["etag"] = reply.headers.get("etag", "")[:500]
            state["modified"] = reply.headers.get("last-modified", "")[:100]
            state["validated"] = here
        place = _shown(here)
        items, bad = self._reader.read(document, context.now(), place)
        link = _next_link(document)
        following = _joined_address(here, link) if link else None
        if link and following is None:
            bad = [*bad, text.reject(f"{place}#next", f"its link to the next page is no address: {link[:100]}")]
        broken = link is not None and following is None
        return _Page(here, place, items, bad, links(document), following, broken, direction(document))

    def _turn_page(self, state: dict[str, Any], here: str, following: str | None, news: int, direction: int) -> bool:
        """Go to the next page: newest first stops where nothing is new, oldest first starts here the next time."""
        pages = int(state.get("pages", 1))
        if following is None or following == here or pages >= MAX_PAGES or (direction < 0 and not news):
            if direction > 0 and here != self._start:
                state["from"] = here
            return False
        state |= {"next": following, "pages": pages + 1}
        return True

    def _follow(self, links: list[tuple[str, str]], state: dict[str, Any], here: str, batch: _Batch) -> bool:
        """Fetch the packages that an index only names, those not stored yet, a bounded number at once."""
        waiting = set(state.get("bad") or [])
        named = [(ocid, target) for ocid, address in links if (target := _joined_address(here, address))]
        unknown = self._reader.unknown([each for each in named if _shown(each[1]) not in waiting], batch.context)
        for ocid, target in unknown[:LINKS_PER_FETCH]:
            self._link(ocid, target, state, batch)
        if len(unknown) <= LINKS_PER_FETCH:
            return False
        state |= {"next": here, "at": 0}
        return True

    def _link(self, ocid: str | None, address: str, state: dict[str, Any], batch: _Batch) -> None:
        place = _shown(address)
        try:
            document = _document(self._ask(address, batch.context, {}))
        except Closed:
            raise
        except Trouble as trouble:
            later = trouble.outcome == "unavailable" and "***" not in place  # a masked address cannot be asked again
            batch.rejects.append(text.reject(place, trouble.detail, external_id=ocid, retry=later))
            state["bad"] = [*(each for each in state.get("bad") or [] if each != place), place][-MAX_BAD:]
            return
        items, bad = self._reader.read(document, batch.context.now(), place)
        _note_bad(bad, place, state, batch)
        batch.add(items)

    def _retry(self, state: dict[str, Any], batch: _Batch) -> None:
        for place, due in batch.tried.items():
            address = place.partition("#")[0]
            if address.startswith(("http://", "https://")) and "***" not in address:
                self._link(due.external_id, address, state, batch)
            else:
                batch.rejects.append(text.reject(place, due.reason, external_id=due.external_id))

    def _ask(self, address: str, context: SourceContext, headers: Mapping[str, str]) -> Response:
        take_turn(context, QUOTA, pace_ms=PACE_MS, daily_limit=DAILY_LIMIT)
        reply = self._http.get(address, headers={"Accept": "application/json", **headers})
        if reply.status in (_OK, _NOT_MODIFIED):
            return reply
        context.slow_down(QUOTA, pace_ms=PACE_MS, pause_ms=min(reply.retry_after_ms(), 10 * MINUTE))
        raise Trouble(_outcome(reply.status), f"HTTP {reply.status}")

    def _validators(self, state: Mapping[str, Any], here: str) -> dict[str, str]:
        if state.get("validated") != here:
            return {}
        said = {"If-None-Match": state.get("etag"), "If-Modified-Since": state.get("modified")}
        return {name: value for name, value in said.items() if value}


def _goes_round(state: dict[str, Any], following: str | None) -> bool:
    """Return whether the next page was read in this pass, by comparing it with one: the last whose number doubled."""
    pages = int(state.get("pages", 1))
    if following is not None and following == state.get("milestone"):
        return True
    if pages & (pages - 1) == 0 and following is not None:
        state["milestone"] = following
    return False


def _over(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in state.items() if name not in ("next", "at", "pages", "stuck", "milestone")}


def _stuck(cursor: Mapping[str, Any]) -> dict[str, Any]:
    """Start from the beginning after a page in the middle failed a few times: it may be gone for good."""
    if not {"next", "from"} & cursor.keys():
        return dict(cursor)
    times = int(cursor.get("stuck", 0)) + 1
    if times < MAX_STUCK:
        return {**cursor, "stuck": times}
    return {name: value for name, value in _over(cursor).items() if name != "from"}


class _Folder:
    """Files in a folder: the cursor holds what is known of each, and where a long one goes on."""

    def __init__(self, settings: Settings, folder: Path, reader: Reader) -> None:
        self._drop = DropFolder(folder, _SUFFIXES, settings.ocds_done_dir)
        self._max_bytes = settings.http_max_bytes
        self._reader = reader
        self._held: tuple[str, list[int], list[Item], list[Reject]] | None = None
        """A file longer than a batch, read once; a process that starts anew reads it again."""

    def fetch(self, cursor: Mapping[str, Any], context: SourceContext) -> Fetched:
        batch = _Batch(context)
        try:
            look = self._drop.look(cursor, _is_handled)
        except OSError as error:
            return Fetched("unavailable", dict(cursor), detail=f"the folder cannot be read ({type(error).__name__})")
        self._drop.move_handled(look)
        waiting = [*self._again(batch, look), *look.waiting]
        more, advanced = False, False
        for number, dropped in enumerate(waiting):
            if number >= FILES_PER_FETCH or len(batch.items) >= ITEMS_PER_FETCH:
                more = True
                break
            before = look.files.get(dropped.name) or {}
            entry = self._file(dropped, before, batch) | {"changed": dropped.changed_ns}
            look.files[dropped.name] = entry
            advanced = advanced or entry != before
            more = more or "at" in entry
        return batch.fetched(look.cursor(), more=more or (look.more and advanced))

    def _again(self, batch: _Batch, look: Look) -> list[DroppedFile]:
        """Return the files of rejects that are tried again, besides those that wait anyway."""
        found: dict[str, DroppedFile] = {}
        for place, due in batch.tried.items():
            name = place.partition("#")[0]
            dropped = look.seen.get(name) or self._drop.find(name)
            if dropped is None:
                batch.rejects.append(text.reject(place, due.reason, external_id=due.external_id))
            elif dropped not in look.waiting:
                found[name] = dropped
        return list(found.values())

    def _file(self, dropped: DroppedFile, before: Mapping[str, Any], batch: _Batch) -> dict[str, Any]:
        stamp = list(dropped.stamp)
        entry: dict[str, Any] = {"stamp": stamp}
        start = int(before.get("at", 0)) if before.get("stamp") == stamp else 0
        known_bad = before.get("bad")
        state: dict[str, Any] = {"bad": known_bad if isinstance(known_bad, list) else []}
        try:
            items, bad = self._read(dropped, batch.context.now())
        except Trouble as trouble:
            items, bad = [], [text.reject(dropped.name, trouble.detail, retry=trouble.outcome == "unavailable")]
        batch.add(items[start : start + ITEMS_PER_FETCH])
        if start + ITEMS_PER_FETCH < len(items):
            self._held = dropped.name, stamp, items, bad
            entry |= {"at": start + ITEMS_PER_FETCH, "unfinished": True}
        else:
            self._held = None
            _note_bad(bad, dropped.name, state, batch)
        return entry | (state if state.get("bad") else {})

    def _read(self, dropped: DroppedFile, now: datetime) -> tuple[list[Item], list[Reject]]:
        if self._held and self._held[:2] == (dropped.name, list(dropped.stamp)):
            return self._held[2:]
        body = self._body(dropped.path)
        document = text.loads(body)
        if document is None and dropped.name.lower().removesuffix(".gz").endswith(("jsonl", "ndjson")):
            document = [text.loads(line) for line in body.splitlines() if line.strip()]
        if document is None:
            raise Trouble("rejected", "the file is no whole JSON")
        _raise_error_inside(document)
        return self._reader.read(document, now, dropped.name)

    def _body(self, path: Path) -> bytes:
        """Read a file, unpacked if it is gzip, up to what may be read."""
        try:
            with path.open("rb") as file:
                packed = file.read(len(_GZIP)) == _GZIP
                file.seek(0)
                body = (gzip.GzipFile(fileobj=file) if packed else file).read(self._max_bytes + 1)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise Trouble("rejected", "the file is no whole gzip") from None
        except OSError as error:
            raise Trouble("unavailable", f"the file cannot be read ({type(error).__name__})") from None
        if len(body) > self._max_bytes:
            raise Trouble("rejected", f"the file has more than {self._max_bytes} bytes (HTTP_MAX_BYTES)")
        return body


def _is_handled(entry: Mapping[str, Any], dropped: DroppedFile) -> bool:
    return entry.get("stamp") == list(dropped.stamp) and "at" not in entry


def _document(reply: Response) -> Any:
    document = text.loads(reply.body)
    if not isinstance(document, dict | list):
        raise Trouble("unavailable", "the answer is no JSON" if reply.body.strip() else "the answer is empty")
    _raise_error_inside(document)
    return document


def _raise_error_inside(document: object) -> None:
    """Recognize an error that came as data: a status and a word about it, and no releases."""
    status = chile.state_number(text.at(document, "status"))
    if status is not None and not (
        {"releases", "records", "ocid", "data"} & set(document if isinstance(document, dict) else ())
    ):
        said = text.clean(text.at(document, "detail"), 200) or text.clean(text.at(document, "message"), 200) or ""
        raise Trouble(_outcome(status), f"it answers {status} {said}".strip())


def _outcome(status: int) -> Literal["unavailable", "rejected"]:
    return "rejected" if status in (_BAD_REQUEST, _DENIED, _FORBIDDEN) else "unavailable"


def _next_link(document: object) -> str | None:
    links = (text.at(document, "links", "next"), text.at(document, "next_url"), text.at(document, "next"))
    return next((address for link in links if (address := text.clean(link, 2_000))), None)


def _joined_address(here: str, link: str) -> str | None:
    """Return the address that a link leads to from here; None if it is none."""
    try:
        target = urljoin(here, link)
        return target if urlsplit(target).scheme in ("http", "https") and urlsplit(target).netloc else None
    except ValueError:
        return None


def _shown(address: str) -> str:
    """Return an address without its user and with its keys masked; the rest tells one document from another."""
    parts = urlsplit(address)
    masked = [(name, "***" if _KEY.search(name) else value) for name, value in parse_qsl(parts.query)]
    query = f"?{urlencode(masked, safe='*')}" if masked else ""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}{query}" if parts.netloc else parts.path
