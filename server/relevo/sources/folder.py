"""JSON lines dropped into a folder, for demos and batch imports: each line is read once, also of a file that grows."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Literal

from relevo.config import MINUTE, Settings
from relevo.core.items import Fetched, Item, Reject
from relevo.core.ports import SourceContext
from relevo.sources import chile, text
from relevo.sources.files import DropFolder, DroppedFile
from relevo.sources.merging import mark, one_each

TELLER = "file"
ITEMS_PER_FETCH = 500
MAX_LINE = 1_000_000
RETRIES_PER_FETCH = 20
SAMPLE = Path(__file__).parent / "sample"
_SAMPLE_MS = 30_000
_MAX_BAD = 200
_SIGHT = 512
_STALE = timedelta(hours=1)
_SUFFIXES = (".jsonl", ".ndjson")
_OPEN = ("publicada", "abierta", "open", "active")
_WITHDRAWN = ("revocada", "suspendida", "retirada", "cancelled", "withdrawn")
_NAMES = ("codigo", "external_id", "id")


class Folder:
    """A folder of JSON lines; without one of your own, a bundled sample."""

    name = "folder"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._namespace = "folder" if settings.folder_source_dir else "sample"
        # A demo that shows nothing at first would show nothing at all.
        self.seeds_silently = bool(settings.folder_source_dir) and not settings.ingest_notify_first_run
        self.interval_ms = settings.worker_interval_minutes * MINUTE if settings.folder_source_dir else _SAMPLE_MS

    @cached_property
    def _drop(self) -> DropFolder:
        """The folder; the sample's may have been copied to where more of it is dropped."""
        settings = self._settings
        sample = settings.sample_folder if settings.sample_folder.is_dir() else SAMPLE
        return DropFolder(settings.folder_source_dir or sample, _SUFFIXES, settings.folder_source_done_dir)

    def fetch(self, cursor: Mapping[str, Any], context: SourceContext) -> Fetched:
        """Read the lines that are new, up to a bound."""
        reading = _Reading(self._drop, self._namespace, context.now())
        try:
            look = self._drop.look(cursor, _is_handled)
        except OSError as error:
            return Fetched("unavailable", dict(cursor), detail=f"the folder cannot be read ({type(error).__name__})")
        self._drop.move_handled(look)
        reading.retry(context.rejects_due(RETRIES_PER_FETCH))
        advanced = False
        for dropped in look.waiting:
            if reading.full:
                reading.more = True
                break
            before = look.files.get(dropped.name)
            look.files[dropped.name] = reading.read(dropped, before or {})
            advanced = advanced or look.files[dropped.name] != before
        reading.more = reading.more or (look.more and advanced)
        return reading.fetched(look.cursor())


def _is_handled(entry: Mapping[str, Any], dropped: DroppedFile) -> bool:
    """Return whether a file is as it was when it was read to its end."""
    if entry.get("stamp") != list(dropped.stamp) or entry.get("unreadable"):
        return False
    return "offset" not in entry or (entry["offset"] == dropped.stamp[1] and not entry.get("unfinished"))


@dataclass
class _Reading:
    """One bounded look into the folder."""

    drop: DropFolder
    namespace: str
    now: datetime
    items: list[Item] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    resolved: list[str] = field(default_factory=list)
    more: bool = False
    came_at: datetime | None = None
    """When the file at hand was written or came into the folder: what its lines say is of then."""

    @property
    def full(self) -> bool:
        """Whether this batch holds as much as one may."""
        return len(self.items) + len(self.rejects) >= ITEMS_PER_FETCH

    def read(self, dropped: DroppedFile, before: Mapping[str, Any]) -> dict[str, Any]:
        """Read a file from where it was left; one that was replaced is read again from its start."""
        name, stamp = dropped.name, list(dropped.stamp)
        # When it came here, for a file copied in may keep an older date; a file system can hold times that are no date.
        came_ns = max(dropped.stamp[2], dropped.changed_ns)
        self.came_at = datetime.fromtimestamp(min(max(came_ns / 10**9, 0), self.now.timestamp()), UTC)
        try:
            with dropped.path.open("rb") as file:
                entry = self._go_on(name, file, stamp, before)
        except OSError as error:
            if not before.get("unreadable"):
                self.rejects.append(text.reject(name, f"the file cannot be read ({type(error).__name__})"))
            return {**before, "unreadable": True, "changed": dropped.changed_ns}
        if before.get("unreadable"):
            self.resolved.append(name)
        return entry | {"changed": dropped.changed_ns}

    def _go_on(self, name: str, file: BinaryIO, stamp: list[int], before: Mapping[str, Any]) -> dict[str, Any]:
        same = before.get("stamp", [None])[0] == stamp[0] and _sight(file, before) == before.get("sight")
        same = same and not (_was_written(before["stamp"], stamp) and _is_edited(file, before))
        known = same and "offset" in before
        place = _Place(before["offset"], before["line"], before.get("digest", 0)) if known else _Place()
        bad = set(before.get("bad") or [])
        file.seek(place.offset)
        # The last line was taken before its end was written: that end is no line of its own.
        if same and before.get("open") and file.read(1) == b"\n":
            place.offset += 1
        file.seek(place.offset)
        stale = self.now.timestamp() - stamp[2] / 10**9 > _STALE.total_seconds()
        while self._line(name, file, place, bad, stale=stale):
            pass
        entry: dict[str, Any] = {"stamp": stamp, "offset": place.offset, "line": place.line, "digest": place.digest}
        if place.open:
            entry["open"] = True
        if place.offset < stamp[1] and self.full:
            entry["unfinished"] = True
        if bad:
            entry["bad"] = sorted(bad)[:_MAX_BAD]
        return entry | {"sight": _sight(file, entry)}

    def _line(self, name: str, file: BinaryIO, place: _Place, bad: set[int], *, stale: bool) -> bool:
        """Read one line; False at the end, in front of a half-written line, or when the batch is full."""
        if self.full:
            self.more = self.more or bool(file.read(1))
            return False
        line = file.readline(MAX_LINE + 1)
        if not line:
            return False
        length = len(line)
        too_long = length > MAX_LINE and not line.endswith(b"\n")
        whole = line.endswith(b"\n")
        while too_long and not whole and (rest := file.readline(MAX_LINE)):
            length += len(rest)
            whole = rest.endswith(b"\n")
        read = _Unusable("the line is longer than 1 MB") if too_long else self._tell(line)
        # Without an end of line yet, only what is whole already counts; the rest waits, though not for ever.
        if not whole and not isinstance(read, Item) and not stale:
            return False
        place.offset += length
        place.line += 1
        place.digest = _added(place.digest, line)
        place.open = not whole
        self._note(f"{name}:{place.line}", read, place.line, bad)
        return True

    def _note(self, where: str, read: Item | _Unusable | None, line: int, bad: set[int]) -> None:
        if isinstance(read, _Unusable):
            self.rejects.append(text.reject(where, read.reason, external_id=read.external_id))
            bad.add(line)
            return
        if read:
            self.items.append(read)
        if line in bad:
            bad.discard(line)
            self.resolved.append(where)

    def _tell(self, line: bytes) -> Item | _Unusable | None:
        if not line.strip():
            return None
        document = text.loads(line)
        if not isinstance(document, dict):
            return _Unusable("the line is no JSON object")
        return read_line(document, self.namespace, self.now, line, self.came_at)

    def retry(self, due: Any) -> None:
        """Read lines again that were rejected and that somebody says are mended."""
        for reject in due:
            name, _, number = reject.place.rpartition(":")
            if not name or not number.isdecimal():
                self.rejects.append(text.reject(reject.place, reject.reason, external_id=reject.external_id))
                continue
            read = self._line_at(name, int(number))
            if isinstance(read, Item):
                self.items.append(read)
                self.resolved.append(reject.place)
            else:
                reason = read.reason if isinstance(read, _Unusable) else "the line is gone"
                self.rejects.append(text.reject(reject.place, reason, external_id=reject.external_id))

    def _line_at(self, name: str, number: int) -> Item | _Unusable | None:
        dropped = self.drop.find(name)
        if dropped is None:
            return None
        with suppress(OSError), dropped.path.open("rb") as file:
            at = 1
            while at < number and (part := file.readline(MAX_LINE)):
                at += part.endswith(b"\n")
            return self._tell(file.readline(MAX_LINE))
        return None

    def fetched(self, cursor: Mapping[str, Any]) -> Fetched:
        """Return what was read."""
        busy = bool(self.items or self.rejects or self.resolved or self.more)
        outcome: Literal["ok", "unchanged"] = "ok" if busy else "unchanged"
        return Fetched(
            outcome,
            cursor,
            one_each(self.items),
            tuple({reject.place: reject for reject in self.rejects}.values()),
            tuple(self.resolved),
            more=self.more,
        )


@dataclass
class _Place:
    """How far a file was read."""

    offset: int = 0
    line: int = 0
    digest: int = 0
    """Sums up the lines read, so that an edit at the same size is seen."""
    open: bool = False
    """Whether the last line read had no end yet."""


@dataclass(frozen=True)
class _Unusable:
    """A line that cannot be used."""

    reason: str
    external_id: str | None = None


def _was_written(before: list[int], stamp: list[int]) -> bool:
    """Return whether a file was written again at the same size, or only touched: its lines tell which."""
    return before != stamp and before[1] == stamp[1]


def _is_edited(file: BinaryIO, entry: Mapping[str, Any]) -> bool:
    """Return whether the lines that were read are other lines now."""
    if "digest" not in entry:
        return False
    file.seek(0)
    digest = 0
    while file.tell() < entry["offset"] and (line := file.readline(MAX_LINE + 1)):
        digest = _added(digest, line)
        while len(line) > MAX_LINE and not line.endswith(b"\n") and (line := file.readline(MAX_LINE)):
            pass
    return bool(digest != entry["digest"])


def _added(digest: int, line: bytes) -> int:
    """Return the sum over lines with one more: what was read can be summed up without reading it again."""
    return (digest + int.from_bytes(hashlib.sha256(line).digest()[:6])) % 2**48


def _sight(file: BinaryIO, entry: Mapping[str, Any]) -> str:
    """Return a hash of the first and the last bytes that were read, by which a rewritten file is recognised."""
    offset = int(entry.get("offset", 0))
    file.seek(0)
    head = file.read(min(_SIGHT, offset))
    file.seek(max(offset - _SIGHT, 0))
    tail = file.read(min(_SIGHT, offset))
    return hashlib.sha256(head + b"\0" + tail).hexdigest()[:16]


def read_line(
    fields: Mapping[str, Any], namespace: str, now: datetime, line: bytes, as_of: datetime | None
) -> Item | _Unusable:
    """Read one object; `cierra_en_dias` and `publicada_hace_minutos` count from now, so that a demo is never old."""
    external_id = next(
        (found for name in _NAMES if (found := text.clean(fields.get(name), text.EXTERNAL_ID + 1))), None
    )
    if not external_id or len(external_id) > text.EXTERNAL_ID:
        return _Unusable("codigo must be text of 1 to 300 characters")
    nombre = text.clean(fields.get("nombre"), text.NOMBRE)
    if not nombre:
        return _Unusable("nombre must be text", external_id)
    where = text.clean(fields.get("namespace"), 101) or namespace
    if not re.fullmatch(r"[A-Za-z0-9._:-]{1,100}", where):
        return _Unusable("namespace must be 1 to 100 characters out of A-Z a-z 0-9 . _ : -", external_id)
    publicada_at = _date(fields, "publicada_at", "publicada_hace_minutos", now, timedelta(minutes=-1))
    cierra_at = _date(fields, "cierra_at", "cierra_en_dias", now, timedelta(days=1))
    monto, moneda = text.amount(fields.get("monto")), text.currency(fields.get("moneda"))
    wrong = {
        "publicada_at": publicada_at is _WRONG,
        "cierra_at": cierra_at is _WRONG,
        "monto": monto is None and _is_told(fields.get("monto")),
        "moneda": moneda is None and fields.get("moneda") is not None,
    }
    if any(wrong.values()):
        return _Unusable(f"{', '.join(name for name in wrong if wrong[name])} cannot be read", external_id)
    estado = text.clean(fields.get("estado"), text.SHORT) or chile.OPEN
    rubros = text.codes(text.each(fields.get("rubros") or fields.get("rubro")))
    withdrawn = fields.get("withdrawn") is True or estado.casefold() in _WITHDRAWN
    is_open = estado.casefold() in _OPEN and (cierra_at is None or cierra_at > now)
    return Item(
        where,
        external_id,
        nombre,
        mark(TELLER, line),
        descripcion=text.clean(fields.get("descripcion"), text.DESCRIPCION),
        organismo=text.clean(fields.get("organismo"), text.ORGANISMO),
        region=text.clean(fields.get("region"), text.REGION),
        tipo=text.clean(fields.get("tipo"), text.SHORT) or chile.tipo_of(external_id),
        estado=estado,
        monto=monto,
        moneda=moneda or ("CLP" if monto else None),
        monto_label=text.clean(fields.get("monto_label"), text.SHORT),
        rubros=rubros,
        rubro_scheme=text.clean(fields.get("rubro_scheme"), 50) or ("UNSPSC" if rubros else None),
        publicada_at=publicada_at,
        cierra_at=cierra_at,
        url=text.link(fields.get("url")),
        announces=is_open and not withdrawn and fields.get("announces") is not False,
        withdrawn=withdrawn,
        as_of=as_of,
        whole_days=tuple(name for name in ("publicada_at", "cierra_at") if text.is_bare_day(fields.get(name))),
    )


def _is_told(monto: object) -> bool:
    """Return whether an amount is given: none at all is told as nothing, or as zero."""
    return monto is not None and text.clean(monto, 50) not in ("0", "0.0", "0.00", "0,00")


_WRONG = datetime.min.replace(tzinfo=UTC)


def _date(fields: Mapping[str, Any], name: str, relative: str, now: datetime, unit: timedelta) -> datetime | None:
    if fields.get(name) is not None:
        return text.moment(fields[name], end_of_day=name == "cierra_at") or _WRONG
    if fields.get(relative) is None:
        return None
    number = text.number(fields[relative])
    try:
        moment = _WRONG if number is None else now + number * unit
    except OverflowError:
        return _WRONG
    return moment if text.in_range(moment) else _WRONG
