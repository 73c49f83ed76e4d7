"""JSON lines dropped into a folder, for demos and batch imports: each line is read once, also of a file that grows."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from stat import S_ISREG
from typing import Any, BinaryIO, Literal

from relevo.config import MINUTE, Settings
from relevo.model import Fetched, Item, Reject
from relevo.ports import Desk
from relevo.sources import register, text
from relevo.sources.merging import mark, one_each

TELLER = "file"
ITEMS_PER_FETCH = 500
MAX_FILES = 1_000
MAX_LINE = 1_000_000
RETRIES_PER_FETCH = 20
SAMPLE = Path(__file__).parent / "sample"
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
        self._folder = settings.folder_source_dir or SAMPLE
        self._namespace = "folder" if settings.folder_source_dir else "sample"
        # A demo that shows nothing at first would show nothing at all.
        self.seeds_silently = bool(settings.folder_source_dir) and not settings.ingest_notify_first_run
        self.interval_ms = (settings.folder_interval_minutes or settings.worker_interval_minutes) * MINUTE

    def fetch(self, cursor: Mapping[str, Any], desk: Desk) -> Fetched:
        """Read the lines that are new, up to a bound."""
        reading = _Reading(self._folder, self._namespace, desk.now())
        try:
            names = reading.look(told=cursor.get("crowded") is True)
        except OSError as error:
            return Fetched("unavailable", dict(cursor), detail=f"the folder cannot be read ({type(error).__name__})")
        reading.retry(desk.rejects_due(RETRIES_PER_FETCH))
        before: Mapping[str, Any] = cursor.get("files") or {}
        files: dict[str, Any] = {}
        for name in names:
            entry = reading.read(name, before.get(name) or {})
            if entry:
                files[name] = entry
        return reading.fetched({"files": files} | ({"crowded": True} if reading.crowded else {}))


@dataclass
class _Reading:
    """One bounded look into the folder."""

    folder: Path
    namespace: str
    now: datetime
    items: list[Item] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    resolved: list[str] = field(default_factory=list)
    more: bool = False
    crowded: bool = False

    def look(self, *, told: bool = False) -> list[str]:
        """Return the names of the files to read, in order; that there are too many is told once."""
        found = sorted(path.name for path in self.folder.iterdir() if _fits(path))
        self.crowded = len(found) > MAX_FILES
        if self.crowded and not told:
            self.rejects.append(text.reject(".", f"of {len(found)} files only {MAX_FILES} are read"))
        return found[:MAX_FILES]

    def read(self, name: str, before: Mapping[str, Any]) -> dict[str, Any]:
        """Read a file from where it was left; one that was replaced is read again from its start."""
        path = self.folder / name
        try:
            with path.open("rb") as file:
                entry = self._go_on(name, file, path, before)
        except OSError as error:
            if not before.get("unreadable"):
                self.rejects.append(text.reject(name, f"the file cannot be read ({type(error).__name__})"))
            return {**before, "unreadable": True}
        if entry.pop("unreadable", None) or before.get("unreadable"):
            self.resolved.append(name)
        return entry

    def _go_on(self, name: str, file: BinaryIO, path: Path, before: Mapping[str, Any]) -> dict[str, Any]:
        stat = path.stat()
        stamp = [stat.st_ino, stat.st_size, stat.st_mtime_ns]
        if before.get("stamp") == stamp and before.get("offset") == stat.st_size:
            return dict(before)
        same = before.get("stamp", [None])[0] == stat.st_ino and _sight(file, before) == before.get("sight")
        place = _Place(before["offset"], before["line"]) if same and "offset" in before else _Place()
        bad = set(before.get("bad") or [])
        file.seek(place.offset)
        # The last line was taken before its end was written: that end is no line of its own.
        if same and before.get("open") and file.read(1) == b"\n":
            place.offset += 1
        file.seek(place.offset)
        stale = self.now.timestamp() - stat.st_mtime > _STALE.total_seconds()
        while self._line(name, file, place, bad, stale=stale):
            pass
        entry: dict[str, Any] = {"stamp": stamp, "offset": place.offset, "line": place.line}
        if place.open:
            entry["open"] = True
        if bad:
            entry["bad"] = sorted(bad)[:_MAX_BAD]
        return entry | {"sight": _sight(file, entry)}

    def _line(self, name: str, file: BinaryIO, place: _Place, bad: set[int], *, stale: bool) -> bool:
        """Read one line; False at the end, in front of a half-written line, or when the batch is full."""
        if len(self.items) + len(self.rejects) >= ITEMS_PER_FETCH:
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
        told = _Told("the line is longer than 1 MB") if too_long else self._tell(line)
        # Without an end of line yet, only what is whole already counts; the rest waits, though not for ever.
        if not whole and not isinstance(told, Item) and not stale:
            return False
        place.offset += length
        place.line += 1
        place.open = not whole
        self._note(f"{name}:{place.line}", told, place.line, bad)
        return True

    def _note(self, where: str, told: Item | _Told | None, line: int, bad: set[int]) -> None:
        if isinstance(told, _Told):
            self.rejects.append(text.reject(where, told.reason, external_id=told.external_id))
            bad.add(line)
            return
        if told:
            self.items.append(told)
        if line in bad:
            bad.discard(line)
            self.resolved.append(where)

    def _tell(self, line: bytes) -> Item | _Told | None:
        if not line.strip():
            return None
        document = text.loads(line)
        if not isinstance(document, dict):
            return _Told("the line is no JSON object")
        return read_line(document, self.namespace, self.now, line)

    def retry(self, due: Any) -> None:
        """Read lines again that were rejected and that somebody says are mended."""
        for reject in due:
            name, _, number = reject.place.rpartition(":")
            if not name or not number.isdecimal():
                continue
            told = self._line_at(name, int(number))
            if isinstance(told, Item):
                self.items.append(told)
                self.resolved.append(reject.place)
            else:
                reason = told.reason if isinstance(told, _Told) else "the line is gone"
                self.rejects.append(text.reject(reject.place, reason, external_id=reject.external_id))

    def _line_at(self, name: str, number: int) -> Item | _Told | None:
        path = self.folder / Path(name).name
        try:
            with path.open("rb") as file:
                for _ in range(number - 1):
                    if not file.readline():
                        return None
                return self._tell(file.readline(MAX_LINE))
        except OSError:
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
    open: bool = False
    """Whether the last line read had no end yet."""


@dataclass(frozen=True)
class _Told:
    """A line that cannot be used."""

    reason: str
    external_id: str | None = None


def _fits(path: Path) -> bool:
    if path.suffix.lower() not in _SUFFIXES or path.name.startswith("."):
        return False
    try:
        return S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def _sight(file: BinaryIO, entry: Mapping[str, Any]) -> str:
    """Return a hash of the first and the last bytes that were read, by which a rewritten file is recognised."""
    offset = int(entry.get("offset", 0))
    file.seek(0)
    head = file.read(min(_SIGHT, offset))
    file.seek(max(offset - _SIGHT, 0))
    tail = file.read(min(_SIGHT, offset))
    return hashlib.sha256(head + b"\0" + tail).hexdigest()[:16]


def read_line(told: Mapping[str, Any], namespace: str, now: datetime, line: bytes = b"") -> Item | _Told:
    """Read one object; `cierra_en_dias` and `publicada_hace_minutos` count from now, so that a demo is never old."""
    external_id = next((found for name in _NAMES if (found := text.clean(told.get(name), text.EXTERNAL_ID + 1))), None)
    if not external_id or len(external_id) > text.EXTERNAL_ID:
        return _Told("codigo must be text of 1 to 300 characters")
    nombre = text.clean(told.get("nombre"), text.NOMBRE)
    if not nombre:
        return _Told("nombre must be text", external_id)
    where = text.clean(told.get("namespace"), 101) or namespace
    if not re.fullmatch(r"[A-Za-z0-9._:-]{1,100}", where):
        return _Told("namespace must be 1 to 100 characters out of A-Z a-z 0-9 . _ : -", external_id)
    problems = [name for name, value in _dates(told, now).items() if value is _WRONG]
    problems += ["monto"] if told.get("monto") is not None and text.amount(told.get("monto")) is None else []
    problems += ["moneda"] if told.get("moneda") is not None and text.currency(told.get("moneda")) is None else []
    if problems:
        return _Told(f"{', '.join(problems)} cannot be read", external_id)
    return _item(told, where, external_id, nombre, now=now, line=line)


def _item(
    told: Mapping[str, Any], namespace: str, external_id: str, nombre: str, *, now: datetime, line: bytes
) -> Item:
    dates = _dates(told, now)
    estado = text.clean(told.get("estado"), text.SHORT) or register.OPEN
    rubros = text.codes(text.each(told.get("rubros") or told.get("rubro")))
    withdrawn = told.get("withdrawn") is True or estado.casefold() in _WITHDRAWN
    cierra_at = dates["cierra_at"]
    is_open = estado.casefold() in _OPEN and (cierra_at is None or cierra_at > now)
    return Item(
        namespace,
        external_id,
        nombre,
        mark(TELLER, line or sorted(told.items())),
        descripcion=text.clean(told.get("descripcion"), text.DESCRIPCION),
        organismo=text.clean(told.get("organismo"), text.ORGANISMO),
        region=text.clean(told.get("region"), text.REGION),
        tipo=text.clean(told.get("tipo"), text.SHORT) or register.tipo_of(external_id),
        estado=estado,
        monto=text.amount(told.get("monto")),
        moneda=text.currency(told.get("moneda")) or ("CLP" if told.get("monto") is not None else None),
        monto_label=text.clean(told.get("monto_label"), text.SHORT),
        rubros=rubros,
        rubro_scheme=text.clean(told.get("rubro_scheme"), 50) or ("UNSPSC" if rubros else None),
        publicada_at=dates["publicada_at"],
        cierra_at=cierra_at,
        url=text.clean(told.get("url"), text.URL),
        announces=is_open and not withdrawn and told.get("announces") is not False,
        withdrawn=withdrawn,
    )


_WRONG = datetime.min.replace(tzinfo=UTC)


def _dates(told: Mapping[str, Any], now: datetime) -> dict[str, datetime | None]:
    return {
        "publicada_at": _date(told, "publicada_at", "publicada_hace_minutos", now, timedelta(minutes=-1)),
        "cierra_at": _date(told, "cierra_at", "cierra_en_dias", now, timedelta(days=1)),
    }


def _date(told: Mapping[str, Any], name: str, relative: str, now: datetime, unit: timedelta) -> datetime | None:
    if told.get(name) is not None:
        return text.moment(told[name], end_of_day=name == "cierra_at") or _WRONG
    if told.get(relative) is None:
        return None
    number = text.number(told[relative])
    return _WRONG if number is None else now + number * unit
