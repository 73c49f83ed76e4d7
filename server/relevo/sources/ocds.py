"""Open Contracting data of any country: release and record packages and bare releases, from an address or a folder."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit
from zoneinfo import ZoneInfo

from relevo.config import MINUTE, Settings
from relevo.model import Fetched, Item, Reject
from relevo.ports import NoRequestsLeft, SourceContext
from relevo.sources import chile, text
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
MAX_FILES = 2_000
MAX_PAGES = 10_000
MAX_BAD = 500
MAX_STUCK = 3
RETRIES_PER_FETCH = 5
_UTC = ZoneInfo("UTC")
_CHILE = "ocds-70d2nz-"
_PREFIX = re.compile(r"(ocds-[a-z0-9]{6})-.+", re.IGNORECASE)
_BEFORE_TENDER = frozenset({"planning", "planningUpdate"})
_OPEN_STATES = frozenset({"active", "open"})
_WITHDRAWN_STATES = frozenset({"cancelled", "canceled", "withdrawn"})
_BUYERS = ("buyer", "procuringEntity")
_OK, _NOT_MODIFIED, _BAD_REQUEST, _DENIED, _FORBIDDEN, _ERROR = 200, 304, 400, 401, 403, 500
_SUFFIXES = (".json", ".jsonl", ".ndjson")
_KEY = re.compile(r"key|token|secret|pass|ticket|auth|sig", re.IGNORECASE)


class Ocds:
    """A publisher of OCDS packages."""

    name = "ocds"

    def __init__(self, settings: Settings) -> None:
        self._reader = _Reader(settings.ocds_namespace)
        self._door: _Web | _Folder
        if settings.ocds_folder:
            self._door = _Folder(settings.ocds_folder, settings.http_max_bytes, self._reader)
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
        )


def _is_news(stored: str | None, new: str) -> bool:
    """Say whether a telling is not known yet; an older one than the stored is no news."""
    return stored is None or (stored != new and _minute(stored) <= _minute(new))


def _minute(own_mark: str) -> str:
    return own_mark.partition(".")[0]


class _Web:
    """Pages at an address.

    The cursor holds `next` (and `at`, how far in it) while a pass goes on, `from` where a feed that grows at its end
    is read next time, the validators of the first page, and the places that were `bad`.
    """

    def __init__(self, settings: Settings, reader: _Reader) -> None:
        self._http = Http(settings)
        self._start = settings.ocds_url or ""
        self._reader = reader

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
        except Trouble as trouble:
            if batch.items or batch.rejects or batch.resolved:
                return batch.fetched(state, more=True, detail=trouble.detail)
            return Fetched(trouble.outcome, _stuck(cursor), detail=trouble.detail[:500])
        return batch.fetched(state, more=True)

    def _page(self, state: dict[str, Any], batch: _Batch, context: SourceContext) -> bool:
        """Read the page at hand and move on; False when the pass is over."""
        here = state.get("next") or state.get("from") or self._start
        opening = "next" not in state
        reply = self._ask(here, context, self._validators(state, here) if opening else {})
        if reply.status == _NOT_MODIFIED:
            return False
        document = _document(reply)
        state.pop("stuck", None)
        if opening:
            state["etag"] = reply.headers.get("etag", "")[:500]
            state["modified"] = reply.headers.get("last-modified", "")[:100]
            state["validated"] = here
        items = self._tell(document, _shown(here), state, batch, context)
        start = int(state.pop("at", 0))
        news = batch.add(items[start : start + ITEMS_PER_FETCH], context)
        if start + ITEMS_PER_FETCH < len(items):
            state |= {"at": start + ITEMS_PER_FETCH, "next": here}
            return True
        if links := _links(document):
            return self._follow(links, state, here, batch, context)
        return self._turn_page(state, here, _next_link(document, here), news, _direction(document))

    def _tell(
        self, document: object, place: str, state: dict[str, Any], batch: _Batch, context: SourceContext
    ) -> list[Item]:
        items, bad = self._reader.read(document, context.now(), place)
        before = state.get("bad") or []
        if bad and place not in before:
            batch.rejects += bad
            state["bad"] = [*before, place][-MAX_BAD:]
        elif not bad and place in before:
            batch.resolved.append(place)
            state["bad"] = [each for each in before if each != place]
        return items

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
        unknown = [(ocid, address) for ocid, address in links if _shown(urljoin(here, address)) not in waiting]
        unknown = self._reader.unknown(unknown, context)
        for ocid, address in unknown[:LINKS_PER_FETCH]:
            self._link(ocid, urljoin(here, address), state, batch, context)
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
        batch.add(self._tell(document, place, state, batch, context), context)

    def _retry(self, state: dict[str, Any], batch: _Batch, context: SourceContext) -> None:
        for due in context.rejects_due(RETRIES_PER_FETCH):
            if due.place.startswith(("http://", "https://")):
                self._link(due.external_id, due.place, state, batch, context)

    def _ask(self, address: str, context: SourceContext, headers: Mapping[str, str]) -> Response:
        try:
            context.take_turn(QUOTA, pace_ms=PACE_MS, daily_limit=DAILY_LIMIT)
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


class _Closed(Trouble):
    """No request may be made now."""


def _over(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in state.items() if name not in ("next", "at", "pages", "stuck")}


def _stuck(cursor: Mapping[str, Any]) -> dict[str, Any]:
    """Start from the beginning after a page in the middle failed a few times: it may be gone for good."""
    if not {"next", "from"} & cursor.keys():
        return dict(cursor)
    times = int(cursor.get("stuck", 0)) + 1
    if times < MAX_STUCK:
        return {**cursor, "stuck": times}
    return {name: value for name, value in _over(cursor).items() if name != "from"}


class _Folder:
    """Files in a folder: the cursor holds each file's size and time, and where a long one goes on."""

    def __init__(self, folder: Path, max_bytes: int, reader: _Reader) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._reader = reader

    def fetch(self, cursor: Mapping[str, Any], context: SourceContext) -> Fetched:
        batch = _Batch()
        seen: dict[str, Any] = dict(cursor.get("files") or {})
        try:
            there = self._look()
        except OSError as error:
            return Fetched("unavailable", dict(cursor), detail=f"the folder cannot be read ({type(error).__name__})")
        crowded = len(there) > MAX_FILES
        if crowded and not cursor.get("crowded"):
            batch.rejects.append(text.reject(".", f"of {len(there)} files only {MAX_FILES} are read"))
        there = dict(list(there.items())[:MAX_FILES])
        files = {name: entry for name, entry in seen.items() if name in there}
        for due in context.rejects_due(RETRIES_PER_FETCH):
            if due.place in files:
                files[due.place] = {"bad": True}
        changed = [name for name, stamp in there.items() if _is_due(files.get(name), stamp)]
        more = False
        for number, name in enumerate(changed):
            if number >= FILES_PER_FETCH or len(batch.items) >= ITEMS_PER_FETCH:
                more = True
                break
            files[name] = self._file(name, there[name], files.get(name, {}), batch, context)
            more = more or "at" in files[name]
        return batch.fetched({"files": files} | ({"crowded": True} if crowded else {}), more=more)

    def _look(self) -> dict[str, str]:
        found = {}
        for path in sorted(self._folder.iterdir()):
            if path.suffix.lower() in _SUFFIXES and not path.name.startswith(".") and path.is_file():
                stat = path.stat()
                found[path.name] = f"{stat.st_size}.{stat.st_mtime_ns}"
        return found

    def _file(
        self, name: str, stamp: str, before: Mapping[str, Any], batch: _Batch, context: SourceContext
    ) -> dict[str, Any]:
        entry: dict[str, Any] = {"stamp": stamp}
        start = int(before.get("at", 0)) if before.get("stamp") == stamp else 0
        try:
            items, bad = self._read(name, context.now())
        except Trouble as trouble:
            batch.rejects.append(text.reject(name, trouble.detail))
            return entry | {"bad": True}
        batch.add(items[start : start + ITEMS_PER_FETCH], context)
        if start + ITEMS_PER_FETCH < len(items):
            return entry | {"at": start + ITEMS_PER_FETCH}
        batch.rejects += bad
        if before.get("bad") and not bad:
            batch.resolved.append(name)
        return entry | ({"bad": True} if bad else {})

    def _read(self, name: str, now: datetime) -> tuple[list[Item], list[Reject]]:
        path = self._folder / name
        try:
            with path.open("rb") as file:
                body = file.read(self._max_bytes + 1)
        except OSError as error:
            raise Trouble("unavailable", f"the file cannot be read ({type(error).__name__})") from None
        if len(body) > self._max_bytes:
            raise Trouble("rejected", f"the file has more than {self._max_bytes} bytes (HTTP_MAX_BYTES)")
        document = text.loads(body)
        if document is None and path.suffix.lower() != ".json":
            document = [text.loads(line) for line in body.splitlines() if line.strip()]
        if document is None:
            raise Trouble("rejected", "the file is no whole JSON")
        _raise_error_inside(document)
        return self._reader.read(document, now, name)


def _is_due(entry: Mapping[str, Any] | None, stamp: str) -> bool:
    return entry is None or entry.get("stamp") != stamp or "at" in entry


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


def _next_link(document: object, here: str) -> str | None:
    for link in (text.at(document, "links", "next"), text.at(document, "next_url"), text.at(document, "next")):
        address = text.clean(link, 2_000)
        if address:
            target = urljoin(here, address)
            return target if urlsplit(target).scheme in ("http", "https") else None
    return None


def _shown(address: str) -> str:
    """Return an address without its user and with its keys masked; the rest tells one document from another."""
    parts = urlsplit(address)
    masked = [(name, "***" if _KEY.search(name) else value) for name, value in parse_qsl(parts.query)]
    query = f"?{urlencode(masked, safe='*')}" if masked else ""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}{query}" if parts.netloc else parts.path


def _direction(document: object) -> int:
    """Say whether a page's releases grow older (-1) or newer (1) towards its end."""
    dates = [when for release, _ in _releases(document) if (when := _when(release))]
    return 0 if not dates or dates[0] == dates[-1] else (1 if dates[0] < dates[-1] else -1)


def _releases(document: object) -> Iterator[tuple[dict[str, Any], bool]]:
    """Yield every release with its contents, however it is packed, and whether it is a compiled one."""
    for part in text.each(document):
        if not isinstance(part, dict):
            continue
        packed = [key for key in ("releases", "records", "results", "data") if isinstance(part.get(key), list)]
        compiled = part.get("compiledRelease")
        if isinstance(compiled, dict):
            yield {"ocid": part.get("ocid"), **compiled}, True
        elif packed:
            for key in packed:
                for inner in part[key]:
                    if isinstance(inner, dict):
                        yield from _releases({"ocid": part.get("ocid"), **inner} if "ocid" in part else inner)
        elif isinstance(part.get("releasePackage"), dict):
            yield from _releases(part["releasePackage"])
        elif isinstance(part.get("ocid"), str) and (isinstance(part.get("tender"), dict) or part.get("tag")):
            yield part, "compiled" in _tags(part)


def _tags(release: Mapping[str, Any]) -> set[str]:
    return {str(tag) for tag in text.each(release.get("tag"))}


def _when(release: Mapping[str, Any]) -> datetime | None:
    return text.moment(release.get("date"), zone=_UTC)


class _Reader:
    """Reads documents into one item per tender."""

    def __init__(self, namespace: str | None) -> None:
        self._namespace = namespace

    def name_of(self, ocid: str) -> tuple[str, list[str]]:
        """Return the register a tender belongs to and its name there; Chile's ocid holds the tender's code."""
        if ocid.lower().startswith(_CHILE):
            return self._namespace or chile.NAMESPACE, [ocid[len(_CHILE) :].upper()]
        prefix = _PREFIX.fullmatch(ocid)
        return self._namespace or (prefix[1].lower() if prefix else "ocds"), [ocid]

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
        for release, _ in _releases(document):
            ocid = text.clean(release.get("ocid"), text.EXTERNAL_ID)
            if ocid:
                by_ocid.setdefault(ocid, []).append(release)
        if not by_ocid and not _is_empty(document):
            return [], [text.reject(place, "no release could be found in it")]
        oldest = datetime(1900, 1, 1, tzinfo=UTC)
        items = []
        for ocid, releases in by_ocid.items():
            ordered = sorted(releases, key=lambda release: _when(release) or oldest)
            versions = [item for release in ordered if (item := self._item(ocid, release, now))]
            if versions:
                joined = versions[0]
                for item in versions[1:]:
                    joined = merge(joined, item)
                items.append(joined)
        return items, []

    def _item(self, ocid: str, release: Mapping[str, Any], now: datetime) -> Item | None:
        """Read a release; before the tender itself is published there is nothing to tell."""
        tender, tags = text.at(release, "tender"), _tags(release)
        if not isinstance(tender, dict) or (tags and tags <= _BEFORE_TENDER):
            return None
        namespace, [external_id] = self.name_of(ocid)
        chilean = ocid.lower().startswith(_CHILE)
        nombre = text.clean(tender.get("title"), text.NOMBRE) or text.clean(tender.get("description"), text.NOMBRE)
        estado, is_open, withdrawn = _state(tender, tags, chilean=chilean)
        # Chile writes its local time and calls it UTC.
        zone, trust = (text.SANTIAGO, False) if chilean else (_UTC, True)
        cierra_at = text.moment(text.at(tender, "tenderPeriod", "endDate"), zone=zone, trust_offset=trust)
        starts = text.at(tender, "tenderPeriod", "startDate")
        rubros, scheme = _classified(tender)
        monto = text.amount(text.at(tender, "value", "amount"))
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
            publicada_at=text.moment(
                tender.get("datePublished") or starts or release.get("date"), zone=zone, trust_offset=trust
            ),
            cierra_at=cierra_at,
            url=chile.page_of(external_id) if chilean else _url(tender),
            announces=is_open and (cierra_at is None or cierra_at > now),
            withdrawn=withdrawn,
        )
        return _marked(item, _when(release))


def _marked(item: Item, when: datetime | None) -> Item:
    """Give an item its mark: its release's minute, by which older tellings are known, and a hash of what it says."""
    minutes = max(int(when.timestamp() // 60), 0) if when else 0
    said = [getattr(item, each.name) for each in fields(item) if each.name not in ("fingerprint", "announces")]
    teller, digest = mark(TELLER, *said).split(":")
    return replace(item, fingerprint=f"{teller}:{minutes:08x}.{digest}")


def _is_empty(document: object) -> bool:
    """Tell a package that holds nothing, or that only names others, from one that is none."""
    lists = [text.at(document, key) for key in ("releases", "records", "results", "data")]
    return document == [] or bool(_links(document)) or any(found == [] for found in lists)


def _state(tender: Mapping[str, Any], tags: set[str], *, chilean: bool) -> tuple[str | None, bool, bool]:
    status = (text.clean(tender.get("status"), text.SHORT) or "").lower()
    details = chile.state_name(tender.get("statusDetails")) if chilean else None
    withdrawn = status in _WITHDRAWN_STATES or "tenderCancellation" in tags or details in chile.WITHDRAWN
    is_open = not withdrawn and (details == chile.OPEN if details else status in _OPEN_STATES)
    if not status and not details:
        is_open = not withdrawn and bool(tags & {"tender", "tenderUpdate", "tenderAmendment"})
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
        address = text.clean(link, text.URL)
        if address and address.startswith(("http://", "https://")):
            return address
    return None
