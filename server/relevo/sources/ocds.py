"""Open Contracting data of any country: release and record packages and bare releases, from an address or a folder."""

from __future__ import annotations

import gzip
import hashlib
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit
from zoneinfo import ZoneInfo

from relevo.config import MINUTE, Settings
from relevo.core.model import Fetched, Item, Reject
from relevo.core.ports import NoRequestsLeft, OutOfTime, SourceContext
from relevo.sources import chile, text
from relevo.sources.files import DropFolder, DroppedFile, Look
from relevo.sources.http import Http, Response, Trouble
from relevo.sources.merging import mark, mark_of, merge

TELLER = "ocds"
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
MAX_REJECTS = 50
_LONGEST_OCID = 2_000
_UTC = ZoneInfo("UTC")
_OLDEST = datetime(1900, 1, 1, tzinfo=UTC)
_PACKED = ("releases", "records", "results", "data")
_LISTING = ("releases", "records")
_UNSPSC = re.compile(r"(?:V\d+\.)?(\d{8})")
_CHILE = "ocds-70d2nz-"
_PREFIX = re.compile(r"(ocds-[a-z0-9]{6})-.+", re.IGNORECASE)
_BEFORE_TENDER = frozenset({"planning", "planningUpdate"})
_OF_TENDERS = frozenset({"tender", "tenderUpdate", "tenderAmendment"})
_UNMARKED = frozenset({"fingerprint", "announces", "as_of", "whole_days"})
_OPEN_STATES = frozenset({"active", "open"})
_WITHDRAWN_STATES = frozenset({"cancelled", "canceled", "withdrawn"})
_BUYERS = ("buyer", "procuringEntity")
_OK, _NOT_MODIFIED, _BAD_REQUEST, _DENIED, _FORBIDDEN, _ERROR = 200, 304, 400, 401, 403, 500
_SUFFIXES = (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz")
_GZIP = b"\x1f\x8b"
_AHEAD = timedelta(days=1)
"""A date farther ahead than clocks and zones explain is no date of publication."""
_KEY = re.compile(r"key|token|secret|pass|ticket|auth|sig", re.IGNORECASE)


class Ocds:
    """A publisher of OCDS packages."""

    name = "ocds"

    def __init__(self, settings: Settings) -> None:
        self._reader = _Reader(settings.ocds_namespace)
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
    """What was gathered: one telling per tender, only what is new or changed."""

    items: dict[tuple[str, str], Item] = field(default_factory=dict)
    rejects: list[Reject] = field(default_factory=list)
    resolved: list[str] = field(default_factory=list)
    incomplete: bool = False
    tried: Mapping[str, Reject] = field(default_factory=dict)
    """By place, the rejects that are tried again now: reported anew, or resolved."""

    def add(self, items: Sequence[Item], context: SourceContext) -> int:
        """Keep what the database does not hold yet; return how many that are."""
        news = 0
        for namespace in {item.namespace for item in items}:
            mine = [item for item in items if item.namespace == namespace]
            known = context.known(namespace, [item.external_id for item in mine])
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
    """Say whether a telling is not known yet; an older one than the stored is no news."""
    return stored is None or (stored != new and (_minute(stored) <= _minute(new) or _minute(new) == _UNDATED))


_UNDATED = f"{TELLER}:00000000"


def _minute(own_mark: str) -> str:
    return own_mark.partition(".")[0]


@dataclass(frozen=True)
class _Page:
    """What one page says."""

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

    def __init__(self, settings: Settings, reader: _Reader) -> None:
        self._http = Http(settings)
        self._start = settings.ocds_url or ""
        self._reader = reader
        self._held: _Page | None = None
        """A page longer than a batch, read once; a process that starts anew asks for it again."""

    def fetch(self, cursor: Mapping[str, Any], context: SourceContext) -> Fetched:
        """Read some pages, or go on reading a long one."""
        batch, state = _Batch(), dict(cursor)
        try:
            self._retry(state, batch, context)
            for _ in range(PAGES_PER_FETCH):
                if not self._page(state, batch, context):
                    return batch.fetched(_over(state), more=False)
                if len(batch.items) >= ITEMS_PER_FETCH or "at" in state:
                    break
        except _OutOfTime:
            return batch.fetched(state, more=True)
        except Trouble as trouble:
            if batch.items or batch.rejects or batch.resolved:
                return batch.fetched(state, more=True, detail=trouble.detail)
            return Fetched(trouble.outcome, _stuck(cursor), detail=trouble.detail[:500])
        return batch.fetched(state, more=True)

    def _page(self, state: dict[str, Any], batch: _Batch, context: SourceContext) -> bool:
        """Read the page at hand and move on; False when the pass is over."""
        here = state.get("next") or state.get("from") or self._start
        page = self._held if self._held and self._held.address == here and "at" in state else None
        page = page or self._read(here, state, context)
        if page is None:
            return False
        start = int(state.pop("at", 0))
        _note_bad(page.rejects, page.place, state, batch)
        news = batch.add(page.items[start : start + ITEMS_PER_FETCH], context)
        self._held = None
        if start + ITEMS_PER_FETCH < len(page.items):
            self._held = page
            state |= {"at": start + ITEMS_PER_FETCH, "next": here}
            return True
        if page.links:
            return self._follow(page.links, state, here, batch, context)
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
        return _Page(here, place, items, bad, _links(document), following, broken, _direction(document))

    def _turn_page(self, state: dict[str, Any], here: str, following: str | None, news: int, direction: int) -> bool:
        """Go to the next page: newest first stops where nothing is new, oldest first starts here the next time."""
        pages = int(state.get("pages", 1))
        if following is None or following == here or pages >= MAX_PAGES or (direction < 0 and not news):
            if direction > 0 and here != self._start:
                state["from"] = here
            return False
        state |= {"next": following, "pages": pages + 1}
        return True

    def _follow(
        self, links: list[tuple[str, str]], state: dict[str, Any], here: str, batch: _Batch, context: SourceContext
    ) -> bool:
        """Fetch the packages that an index only names, those not stored yet, a bounded number at once."""
        waiting = set(state.get("bad") or [])
        named = [(ocid, target) for ocid, address in links if (target := _joined_address(here, address))]
        unknown = self._reader.unknown([each for each in named if _shown(each[1]) not in waiting], context)
        for ocid, target in unknown[:LINKS_PER_FETCH]:
            self._link(ocid, target, state, batch, context)
        if len(unknown) <= LINKS_PER_FETCH:
            return False
        state |= {"next": here, "at": 0}
        return True

    def _link(
        self, ocid: str | None, address: str, state: dict[str, Any], batch: _Batch, context: SourceContext
    ) -> None:
        place = _shown(address)
        try:
            document = _document(self._ask(address, context, {}))
        except _Closed:
            raise
        except Trouble as trouble:
            later = trouble.outcome == "unavailable" and "***" not in place  # a masked address cannot be asked again
            batch.rejects.append(text.reject(place, trouble.detail, external_id=ocid, retry=later))
            state["bad"] = [*(each for each in state.get("bad") or [] if each != place), place][-MAX_BAD:]
            return
        items, bad = self._reader.read(document, context.now(), place)
        _note_bad(bad, place, state, batch)
        batch.add(items, context)

    def _retry(self, state: dict[str, Any], batch: _Batch, context: SourceContext) -> None:
        batch.tried = {due.place: due for due in context.rejects_due(RETRIES_PER_FETCH)}
        for place, due in batch.tried.items():
            address = place.partition("#")[0]
            if address.startswith(("http://", "https://")) and "***" not in address:
                self._link(due.external_id, address, state, batch, context)
            else:
                batch.rejects.append(text.reject(place, due.reason, external_id=due.external_id))

    def _ask(self, address: str, context: SourceContext, headers: Mapping[str, str]) -> Response:
        try:
            context.take_turn(QUOTA, pace_ms=PACE_MS, daily_limit=DAILY_LIMIT)
        except OutOfTime:
            raise _OutOfTime("unavailable", "") from None
        except NoRequestsLeft as closed:
            raise _Closed("unavailable", str(closed) or "no request may be made now") from None
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
    """Tell whether the next page was read in this pass: it is compared with one page, the last whose number doubled."""
    pages = int(state.get("pages", 1))
    if following is not None and following == state.get("milestone"):
        return True
    if pages & (pages - 1) == 0 and following is not None:
        state["milestone"] = following
    return False


class _Closed(Trouble):
    """No request may be made now."""


class _OutOfTime(_Closed):
    """The run's time is over: the rest is for the next one, and nothing is wrong."""


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

    def __init__(self, settings: Settings, folder: Path, reader: _Reader) -> None:
        self._drop = DropFolder(folder, _SUFFIXES, settings.ocds_done_dir)
        self._max_bytes = settings.http_max_bytes
        self._reader = reader
        self._held: tuple[str, list[int], list[Item], list[Reject]] | None = None
        """A file longer than a batch, read once; a process that starts anew reads it again."""

    def fetch(self, cursor: Mapping[str, Any], context: SourceContext) -> Fetched:
        batch = _Batch()
        try:
            look = self._drop.look(cursor, _is_handled)
        except OSError as error:
            return Fetched("unavailable", dict(cursor), detail=f"the folder cannot be read ({type(error).__name__})")
        self._drop.move_handled(look)
        waiting = [*self._again(batch, context, look), *look.waiting]
        more, advanced = False, False
        for number, dropped in enumerate(waiting):
            if number >= FILES_PER_FETCH or len(batch.items) >= ITEMS_PER_FETCH:
                more = True
                break
            before = look.files.get(dropped.name) or {}
            entry = self._file(dropped, before, batch, context) | {"changed": dropped.changed_ns}
            look.files[dropped.name] = entry
            advanced = advanced or entry != before
            more = more or "at" in entry
        return batch.fetched(look.cursor(), more=more or (look.more and advanced))

    def _again(self, batch: _Batch, context: SourceContext, look: Look) -> list[DroppedFile]:
        """Return the files of rejects that are tried again, besides those that wait anyway."""
        batch.tried = {due.place: due for due in context.rejects_due(RETRIES_PER_FETCH)}
        found: dict[str, DroppedFile] = {}
        for place, due in batch.tried.items():
            name = place.partition("#")[0]
            dropped = look.seen.get(name) or self._drop.find(name)
            if dropped is None:
                batch.rejects.append(text.reject(place, due.reason, external_id=due.external_id))
            elif dropped not in look.waiting:
                found[name] = dropped
        return list(found.values())

    def _file(
        self, dropped: DroppedFile, before: Mapping[str, Any], batch: _Batch, context: SourceContext
    ) -> dict[str, Any]:
        stamp = list(dropped.stamp)
        entry: dict[str, Any] = {"stamp": stamp}
        start = int(before.get("at", 0)) if before.get("stamp") == stamp else 0
        known_bad = before.get("bad")
        state: dict[str, Any] = {"bad": known_bad if isinstance(known_bad, list) else []}
        try:
            items, bad = self._read(dropped, context.now())
        except Trouble as trouble:
            items, bad = [], [text.reject(dropped.name, trouble.detail, retry=trouble.outcome == "unavailable")]
        batch.add(items[start : start + ITEMS_PER_FETCH], context)
        if start + ITEMS_PER_FETCH < len(items):
            self._held = dropped.name, stamp, items, bad
            return entry | {
                "at": start + ITEMS_PER_FETCH,
                "unfinished": True,
                **({"bad": state["bad"]} if state["bad"] else {}),
            }
        self._held = None
        _note_bad(bad, dropped.name, state, batch)
        return entry | (state if state.get("bad") else {})

    def _read(self, dropped: DroppedFile, now: datetime) -> tuple[list[Item], list[Reject]]:
        if self._held and self._held[:2] == (dropped.name, list(dropped.stamp)):
            return self._held[2:]
        body = self._body(dropped.path)
        document = text.loads(body)
        if document is None and dropped.path.name.lower().removesuffix(".gz").endswith(("jsonl", "ndjson")):
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
    """Tell an error that came as data: a status and a word about it, and no releases."""
    status = chile.state_number(text.at(document, "status"))
    if status is not None and not (
        {"releases", "records", "ocid", "data"} & set(document if isinstance(document, dict) else ())
    ):
        said = text.clean(text.at(document, "detail"), 200) or text.clean(text.at(document, "message"), 200) or ""
        raise Trouble(_outcome(status), f"it answers {status} {said}".strip())


def _outcome(status: int) -> Literal["unavailable", "rejected"]:
    return "rejected" if status in (_BAD_REQUEST, _DENIED, _FORBIDDEN) else "unavailable"


def _links(document: object) -> list[tuple[str, str]]:
    """Return ocid and address of what an index names without telling."""
    entries = [each for each in text.each(text.at(document, "data")) if isinstance(each, dict) and "tender" not in each]
    named = ((text.clean(each.get("ocid"), 300), text.clean(each.get("urlTender"), 2_000)) for each in entries)
    return [(ocid, address) for ocid, address in named if ocid and address]


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


def _direction(document: object) -> int:
    """Say whether a page's releases grow older (-1) or newer (1) towards its end."""
    dates = [when for release in _releases(document) if (when := _when(release))]
    return 0 if not dates or dates[0] == dates[-1] else (1 if dates[0] < dates[-1] else -1)


def _releases(document: object, *, listed: bool = False) -> Iterator[dict[str, Any]]:
    """Yield every release, however it is packed; also one, `listed` as such, that says too little to be used."""
    for part in text.each(document):
        if not isinstance(part, dict):
            continue
        packed = [key for key in _PACKED if isinstance(part.get(key), list)]
        compiled = part.get("compiledRelease")
        if isinstance(compiled, dict):
            yield {"ocid": part.get("ocid"), **compiled}
        elif packed:
            for key in packed:
                for inner in part[key]:
                    if isinstance(inner, dict) and not _is_link(inner):
                        whole = {"ocid": part.get("ocid"), **inner} if "ocid" in part else inner
                        yield from _releases(whole, listed=key in _LISTING)
        elif isinstance(part.get("releasePackage"), dict):
            yield from _releases(part["releasePackage"])
        elif {"ocid", "tender", "tag"} & part.keys() or listed:
            yield part


def _broken(document: object) -> Iterator[tuple[int, str]]:
    """Yield the places in a list of releases, or lines of a file, that hold no object."""
    parts = [part for part in text.each(document) if isinstance(part, dict)]
    lists = [part[key] for part in parts for key in _LISTING if isinstance(part.get(key), list)]
    for listed in [document, *lists] if isinstance(document, list) else lists:
        for number, part in enumerate(listed, start=1):
            if not isinstance(part, dict):
                yield number, "it is no JSON object"


def _is_link(entry: Mapping[str, Any]) -> bool:
    return "urlTender" in entry and "tender" not in entry


def _short(name: str) -> str:
    """Return a name that fits; of a longer one the rest is hashed, so that two of them stay two."""
    if len(name) <= text.EXTERNAL_ID:
        return name
    return f"{name[: text.EXTERNAL_ID - 33]}~{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:32]}"


def _tags(release: Mapping[str, Any]) -> set[str]:
    return {str(tag) for tag in text.each(release.get("tag"))}


def _when(release: Mapping[str, Any]) -> datetime | None:
    return text.moment(release.get("date"), zone=_UTC)


class _Unusable(Exception):  # noqa: N818 a state of affairs: this release cannot be used
    """A release says something that cannot be read and must not be passed over."""


@dataclass
class _Rejects:
    """What of one document could not be used: the first of them one by one, the rest as a number."""

    place: str
    found: list[Reject] = field(default_factory=list)
    left_out: int = 0

    def add(self, where: object, reason: str, external_id: str | None = None) -> None:
        """Keep one more."""
        if len(self.found) < MAX_REJECTS:
            self.found.append(text.reject(f"{self.place}#{where}", reason, external_id=external_id))
            return
        self.left_out += 1
        self.found[MAX_REJECTS - 1 :] = [
            text.reject(f"{self.place}#more", f"{self.left_out + 1} more could not be used, the last: {reason}")
        ]


class _Reader:
    """Reads documents into one item per tender."""

    def __init__(self, namespace: str | None) -> None:
        self._namespace = namespace

    def name_of(self, ocid: str) -> tuple[str, list[str]]:
        """Return the register a tender belongs to and its name there; Chile's ocid holds the tender's code."""
        if ocid.lower().startswith(_CHILE):
            return self._namespace or chile.NAMESPACE, [_short(ocid[len(_CHILE) :].upper())]
        prefix = _PREFIX.fullmatch(ocid)
        return self._namespace or (prefix[1].lower() if prefix else "ocds"), [_short(ocid)]

    def unknown(self, links: Sequence[tuple[str, str]], context: SourceContext) -> list[tuple[str, str]]:
        """Keep the links to tenders that are not stored yet."""
        names = {ocid: self.name_of(ocid) for ocid, _ in links}
        stored: set[tuple[str, str]] = set()
        for register_name in {namespace for namespace, _ in names.values()}:
            ids = [external_id for namespace, [external_id] in names.values() if namespace == register_name]
            stored |= {(register_name, external_id) for external_id in context.known(register_name, ids)}
        return [link for link in links if (names[link[0]][0], names[link[0]][1][0]) not in stored]

    def read(self, document: object, now: datetime, place: str) -> tuple[list[Item], list[Reject]]:
        """Return one item per ocid, told by its releases from old to new, and what could not be used."""
        by_ocid: dict[str, list[dict[str, Any]]] = {}
        rejects = _Rejects(place)
        for number, release in enumerate(_releases(document), start=1):
            ocid = text.clean(release.get("ocid"), _LONGEST_OCID)
            tender = release.get("tender")
            if not ocid:
                rejects.add(f"release-{number}", "a release without an ocid")
            elif tender is not None and not isinstance(tender, dict):
                rejects.add(f"release-{number}", "its tender is no object", ocid)
            elif tender is None and (untold := _untold(release)):
                rejects.add(f"release-{number}", untold, ocid)
            else:
                by_ocid.setdefault(ocid, []).append(release)
        for number, what in _broken(document):
            rejects.add(number, what)
        if not by_ocid and not rejects.found and not _is_empty(document):
            return [], [text.reject(place, "no release could be found in it")]
        items = []
        for ocid, releases in by_ocid.items():
            try:
                joined = self._joined(ocid, releases, now)
            except _Unusable as unusable:
                rejects.add(ocid, str(unusable), ocid)
                continue
            if joined is not None:
                items.append(joined)
        return items, rejects.found

    def _joined(self, ocid: str, releases: list[dict[str, Any]], now: datetime) -> Item | None:
        """Return what a tender's releases say together, from old to new."""
        credible = [when for release in releases if (when := _when(release)) and when <= now + _AHEAD]
        latest = max(credible, default=None)
        told = [(_told_at(release, now, latest), release) for release in releases]
        told.sort(key=lambda each: (each[0] or _OLDEST, "tenderCancellation" in _tags(each[1])))
        versions = [item for when, release in told if (item := self._item(ocid, release, now, when))]
        if not versions:
            return None
        joined = versions[0]
        for item in versions[1:]:
            joined = merge(joined, item)
        return joined

    def _item(self, ocid: str, release: Mapping[str, Any], now: datetime, when: datetime | None) -> Item | None:
        """Read a release; before the tender itself is published there is nothing to tell."""
        tender, tags = text.at(release, "tender"), _tags(release)
        if tender is None and "tenderCancellation" in tags:
            tender = {}  # that it is cancelled is all there is to tell
        if not isinstance(tender, dict) or (tags and tags <= _BEFORE_TENDER):
            return None
        namespace, [external_id] = self.name_of(ocid)
        chilean = ocid.lower().startswith(_CHILE)
        nombre = text.clean(tender.get("title"), text.NOMBRE) or text.clean(tender.get("description"), text.NOMBRE)
        estado, is_open, withdrawn = _state(tender, tags, chilean=chilean)
        # Chile writes its local time and calls it UTC.
        zone, trust = (text.SANTIAGO, False) if chilean else (_UTC, True)
        if not isinstance(tender.get("tenderPeriod"), dict | None):
            raise _Unusable(f"tenderPeriod is no object: {text.clean(tender['tenderPeriod'], 50) or 'a list'}")
        closes = text.at(tender, "tenderPeriod", "endDate")
        cierra_at = text.moment(closes, zone=zone, end_of_day=True, trust_offset=trust)
        if closes not in (None, "") and cierra_at is None:
            raise _Unusable(f"tenderPeriod.endDate cannot be read: {text.clean(closes, 50) or type(closes).__name__}")
        starts = text.at(tender, "tenderPeriod", "startDate")
        rubros, scheme = _classified(tender)
        monto = text.amount(text.at(tender, "value", "amount"), lone_point="thousands" if chilean else "decimal")
        published = tender.get("datePublished") or starts or release.get("date")
        days = {"publicada_at": published, "cierra_at": closes}
        item = Item(
            namespace,
            external_id,
            nombre or external_id,
            "",
            descripcion=text.clean(tender.get("description"), text.DESCRIPCION),
            organismo=_buyer(release, chilean=chilean),
            region=_region(release),
            tipo=chile.tipo_of(external_id) if chilean else _method(tender),
            estado=estado,
            monto=monto,
            moneda=text.currency(text.at(tender, "value", "currency")),
            rubros=rubros,
            rubro_scheme=scheme,
            publicada_at=text.moment(published, zone=zone, trust_offset=trust),
            cierra_at=cierra_at,
            url=chile.page_of(external_id) if chilean else _url(tender),
            announces=is_open and (cierra_at is None or cierra_at > now),
            withdrawn=withdrawn,
        )
        whole = tuple(name for name, told in days.items() if text.is_bare_day(told))
        return replace(_marked(item, when), as_of=when, whole_days=whole)


def _told_at(release: Mapping[str, Any], now: datetime, latest: datetime | None) -> datetime | None:
    """Return when a release was told; of one dated ahead nothing is known but that it was told by now."""
    when = _when(release)
    return when if when is None or when <= now + _AHEAD else latest


def _untold(release: Mapping[str, Any]) -> str:
    """Say why nothing can be told of a release that has no tender, although there is something to tell."""
    tags = _tags(release)
    if tags & _OF_TENDERS:
        return f"it is tagged {min(tags & _OF_TENDERS)} and has no tender"
    if "versionedRelease" in release:
        return "a record with nothing but a versioned release: its releases or a compiled one are needed"
    if not tags and text.link(release.get("url")):
        return "a release that is named by its address alone: the package must hold it"
    return ""


def _marked(item: Item, when: datetime | None) -> Item:
    """Give an item its mark: its release's minute, by which older tellings are known, and a hash of what it says."""
    minutes = max(int(when.timestamp() // 60), 0) if when else 0
    said = [getattr(item, each.name) for each in fields(item) if each.name not in _UNMARKED]
    teller, digest = mark(TELLER, *said).split(":")
    return replace(item, fingerprint=f"{teller}:{minutes:08x}.{digest}")


def _is_empty(document: object) -> bool:
    """Tell a package that holds nothing, or that only names others, from one that is none."""
    lists = [text.at(document, key) for key in _PACKED]
    return document == [] or bool(_links(document)) or any(found == [] for found in lists)


def _state(tender: Mapping[str, Any], tags: set[str], *, chilean: bool) -> tuple[str | None, bool, bool]:
    status = (text.clean(tender.get("status"), text.SHORT) or "").lower()
    details = chile.state_name(tender.get("statusDetails")) if chilean else None
    withdrawn = status in _WITHDRAWN_STATES or "tenderCancellation" in tags or details in chile.WITHDRAWN
    is_open = not withdrawn and (details == chile.OPEN if details else status in _OPEN_STATES)
    if not status and not details:
        is_open = not withdrawn and bool(tags & _OF_TENDERS)
    return details or status or None, is_open, withdrawn


def _classified(tender: Mapping[str, Any]) -> tuple[tuple[str, ...], str | None]:
    """Return the codes of one scheme: UNSPSC where there is any, else the first that is told."""
    codes: list[tuple[str, object]] = []
    for holder in [tender, *text.each(tender.get("items"))]:
        given = [
            *text.each(text.at(holder, "classification")),
            *text.each(text.at(holder, "additionalClassifications")),
        ]
        codes += [((text.clean(text.at(each, "scheme"), 50) or ""), text.at(each, "id")) for each in given]
    codes = [(scheme, code) for scheme, code in codes if text.code(code)]
    if not codes:  # Colombia writes an item's UNSPSC code as its id, and no classification
        ids = [_UNSPSC.fullmatch(text.code(text.at(item, "id")) or "") for item in text.each(tender.get("items"))]
        codes = [("UNSPSC", found[1]) for found in ids if found]
    schemes = [scheme for scheme, _ in codes]
    chosen = next((scheme for scheme in schemes if scheme.upper() == "UNSPSC"), schemes[0] if schemes else "")
    return text.codes([code for scheme, code in codes if scheme == chosen]), chosen or None


def _parties(release: Mapping[str, Any]) -> list[dict[str, Any]]:
    named = [each for each in text.each(release.get("parties")) if isinstance(each, dict)]
    buyers = [each for each in named if set(_BUYERS) & {str(role) for role in text.each(each.get("roles"))}]
    inside = [release.get("buyer"), text.at(release, "tender", "procuringEntity")]
    return [*buyers, *(each for each in inside if isinstance(each, dict))]


def _buyer(release: Mapping[str, Any], *, chilean: bool) -> str | None:
    names = [text.clean(text.at(release, "buyer", "name"), text.ORGANISMO)]
    names += [text.clean(each.get("name"), text.ORGANISMO) for each in _parties(release)]
    name = next((each for each in names if each), None)
    # Chile writes "organism | unit".
    return name.partition(" | ")[0] if name and chilean else name


def _region(release: Mapping[str, Any]) -> str | None:
    places = [text.at(each, "address", "region") for each in _parties(release)]
    for item in text.each(text.at(release, "tender", "items")):
        places += [text.at(item, "deliveryAddress", "region")]
        places += [text.at(each, "region") for each in text.each(text.at(item, "deliveryAddresses"))]
    return next((found for place in places if (found := text.clean(place, text.REGION))), None)


def _method(tender: Mapping[str, Any]) -> str | None:
    details = text.clean(tender.get("procurementMethodDetails"), 1_000)
    return (
        details if details and len(details) <= text.SHORT else text.clean(tender.get("procurementMethod"), text.SHORT)
    )


def _url(tender: Mapping[str, Any]) -> str | None:
    documents = [each for each in text.each(tender.get("documents")) if isinstance(each, dict)]
    notices = [each.get("url") for each in documents if each.get("documentType") == "tenderNotice"]
    for link in (tender.get("url"), tender.get("uri"), *notices):
        if address := text.link(link):
            return address
    return None
