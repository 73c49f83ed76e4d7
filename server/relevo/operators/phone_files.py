"""Files of phones, as CSV or a JSON object per line: Relevo's own columns, and those of Gorush, Rpush and OneSignal."""

from __future__ import annotations

import csv
import json
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TextIO
from uuid import UUID
from zoneinfo import available_timezones

from relevo.client.checks import is_attribute
from relevo.client.values import Installation
from relevo.core.errors import InvalidInputError, UsageError
from relevo.core.known_services import WITH_ENVIRONMENT

_MOST_LINE = 100_000
_MOST_LINES = 21  # of one row, whose values may hold some
_OPEN = "unexpected end of data"  # as the csv module calls a quote that is not closed
_NO_UTF_8 = "it is not written in UTF-8"
FIELDS = (
    *("token", "installation_id", "project", "provider", "environment", "platform", "locale", "timezone", "owner"),
    *("push_capable", "permission", "opt_outs", "attributes"),
)
"""The columns of Relevo's own."""

Row = Mapping[str, Any]
Fields = dict[str, Any]


class Line(NamedTuple):
    """One phone of a file, with the number of its last line; `row` is None where `wrong` says why it cannot be read."""

    number: int
    row: Row | None
    wrong: str = ""


def read(path: Path) -> Iterator[Line]:
    """Read a file line by line; only those of one row are in memory at a time."""
    if path.suffix not in _READERS:
        raise UsageError(f"{path.name} must end in .csv or .jsonl.", hint="Unpack it first, if it is compressed.")
    try:
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            yield from _READERS[path.suffix](_bounded(file))
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}.", hint="Name a file that this user may read."
        ) from None
    except UnicodeError:
        raise UsageError(f"{path} is not written in UTF-8.", hint="Convert it, for instance with iconv.") from None


def _read_csv(lines: Iterator[str]) -> Iterator[Line]:
    """Read rows, each by itself: a quote that nothing closes is its own line's trouble, not that of all behind it."""
    heading, number = next(csv.reader([next(lines, "")]), []), 1
    if any(map(_is_broken, heading)):
        raise UnicodeError
    window = deque(islice(lines, _MOST_LINES))
    while window:
        row = _whole_row(window)
        window.extend(islice(lines, len(row)))
        number += len(row)
        if row[0].strip():
            yield _read_row(number, heading, "".join(row))


def _whole_row(window: deque[str]) -> list[str]:
    """Take the lines of the next row: one, or the further ones that it holds in quotes, if something closes them."""
    row: list[str] = []
    for line in window:
        row.append(line)
        if (wrong := _wrong_with("".join(row))) != _OPEN:
            break
    return [window.popleft() for _ in (row[:1] if wrong else row)]


def _read_row(number: int, heading: Sequence[str], text: str) -> Line:
    if _is_broken(text):
        return Line(number, None, _NO_UTF_8)
    if (wrong := _wrong_with(text)) == _OPEN:
        return Line(number, None, "it is no CSV: a quote is not closed")
    try:
        values = next(csv.reader([text]))
    except csv.Error:
        return Line(number, None, f"it is no CSV: {wrong}")
    return Line(number, {name: value for name, value in zip(heading, values, strict=False) if name and value})


def _wrong_with(text: str) -> str:
    """Return what is wrong with a row, strictly read; empty if nothing is."""
    try:
        next(csv.reader([text], strict=True), None)
    except csv.Error as error:
        return str(error)
    return ""


def _read_jsonl(lines: Iterator[str]) -> Iterator[Line]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if _is_broken(line):
            yield Line(number, None, _NO_UTF_8)
        elif isinstance(row, dict):
            yield Line(number, {name: value for name, value in row.items() if value not in (None, "")})
        else:
            yield Line(number, None, "it is no JSON object")


def _is_broken(text: str) -> bool:
    """Return whether some bytes of it were no UTF-8."""
    return not text.isascii() and any("\udc80" <= each <= "\udcff" for each in text)


def _bounded(file: TextIO) -> Iterator[str]:
    """Read lines, each as far as it may be long; what is left of a longer one is passed over."""
    while line := file.readline(_MOST_LINE):
        rest = line
        while len(rest) == _MOST_LINE and not rest.endswith("\n"):
            rest = file.readline(_MOST_LINE)
        yield line


_READERS: Mapping[str, Callable[[Iterator[str]], Iterator[Line]]] = {".csv": _read_csv, ".jsonl": _read_jsonl}


def own(row: Row) -> Fields:
    """Read a phone as Relevo names its fields."""
    given: Fields = {name: row[name] for name in FIELDS if name in row}
    if isinstance(given.get("opt_outs"), str):
        given["opt_outs"] = [each.strip() for each in given["opt_outs"].split(",") if each.strip()]
    if isinstance(given.get("attributes"), str):
        given["attributes"] = _object("attributes", given["attributes"])
    if isinstance(given.get("push_capable"), str):
        given["push_capable"] = _yes_or_no("push_capable", given["push_capable"])
    return given


def gorush(row: Row) -> Fields:
    """Read a phone as Gorush's requests name it: `platform` 1 is iOS, 2 Android; `development` is Apple's sandbox."""
    provider, platform = _service(
        str(row.get("platform", "")), {"1": _IOS, "ios": _IOS, "2": _ANDROID, "android": _ANDROID}
    )
    given = {"token": row.get("token"), "provider": provider, "platform": platform}
    if provider == "apns" and "development" in row:
        given["environment"] = "sandbox" if _yes_or_no("development", row["development"]) else "production"
    return given


def rpush(row: Row) -> Fields:
    """Read a phone as Rpush's table of notifications or of feedback names it, by the class in `type`."""
    kind = str(row.get("type", ""))
    service = next((service for word, service in _RPUSH.items() if f"::{word}" in kind), None)
    token = row.get("device_token")
    if service is None and token is not None:
        service = _IOS  # only Apple's have it
    if service is None:
        raise InvalidInputError("type must be a class of Rpush for APNs, FCM or GCM.")
    ids = row.get("registration_ids")
    if token is None and ids is not None:
        listed = _listed(ids)
        if len(listed) != 1:
            raise InvalidInputError("registration_ids must hold one token.")
        token = listed[0]
    given = {"token": token, "provider": service[0], "platform": service[1]}
    if service == _IOS and row.get("environment") in ("sandbox", "development"):
        given["environment"] = "sandbox"
    return given


def onesignal(row: Row) -> Fields:
    """Read a phone as OneSignal's export of subscriptions names it."""
    kind = str(row.get("device_type", ""))
    if kind in _WEB:
        raise InvalidInputError("device_type is a browser's, whose subscription is bound to OneSignal's key.")
    provider, platform = _service(kind, {"0": _IOS, "1": _ANDROID}, "device_type")
    subscribed = str(row.get("notification_types", ""))
    unsubscribed = subscribed == "0" or subscribed.startswith("-")
    if _yes_or_no("invalid_identifier", row.get("invalid_identifier", False)) and not unsubscribed:
        raise InvalidInputError("invalid_identifier says that OneSignal has its token for gone.")
    given = {"token": row.get("identifier"), "provider": provider, "platform": platform, "timezone": _zone_of(row)}
    if unsubscribed:
        given["permission"] = "denied"  # who unsubscribed is known, and gets nothing
    if provider == "apns" and str(row.get("test_type", "")) == "1":
        given["environment"] = "sandbox"
    tags = _tags_of(row)
    given["attributes"] = {name: value for name, value in tags.items() if is_attribute(name, value)} or None
    given |= {to: row[name] for name, to in (("external_user_id", "owner"), ("language", "locale")) if name in row}
    return given


def _tags_of(row: Row) -> Fields:
    """Return the tags of a phone, which become its attributes."""
    tags = row.get("tags", {})
    return _object("tags", tags) if isinstance(tags, str) else tags if isinstance(tags, dict) else {}


def _object(name: str, text: str) -> Fields:
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        read = None
    if not isinstance(read, dict):
        raise InvalidInputError(f"{name} must be a JSON object.")
    return read


def _zone_of(row: Row) -> str | None:
    """Return a phone's time zone: by its name, or of an offset in seconds that of as many whole hours."""
    offset = str(row.get("timezone", ""))
    for named in (str(row.get("timezone_id", "")), offset):
        if named in _zones():
            return named
    hours, rest = divmod(int(offset), _HOUR_S) if re.fullmatch(r"-?\d{1,6}", offset) else (0, 1)
    if rest or not -_WEST <= hours <= _EAST:
        return None
    return f"Etc/GMT{-hours:+}" if hours else "UTC"  # their sign is the other way round


@cache
def _zones() -> set[str]:
    return available_timezones()


_HOUR_S, _WEST, _EAST = 3_600, 12, 14
_LONGEST_ZONE = 40
_IOS, _ANDROID = ("apns", "ios"), ("fcm", "android")
_RPUSH = {"Apns": _IOS, "Fcm": _ANDROID, "Gcm": _ANDROID}
_WEB = ("4", "5", "7", "8")
FORMATS: Mapping[str, Callable[[Row], Fields]] = {
    "relevo": own,
    "gorush": gorush,
    "rpush": rpush,
    "onesignal": onesignal,
}
"""How the phones of a file are read, by whose file it is."""

_TAKEN: Mapping[str, frozenset[str]] = {
    "relevo": frozenset(FIELDS),
    "gorush": frozenset({"token", "platform", "development"}),
    "rpush": frozenset({"type", "device_token", "registration_ids", "environment"}),
    "onesignal": frozenset(
        {
            *("identifier", "device_type", "invalid_identifier", "notification_types", "test_type"),
            *("external_user_id", "language", "timezone", "timezone_id", "tags"),
        }
    ),
}


def dropped(row: Row, kind: str, columns: Mapping[str, str]) -> set[str]:
    """Return the columns of a row that say something which Relevo has no place for, and its time zone if that is so."""
    unused = {name for name in row if name not in _TAKEN[kind] and name not in columns.values()}
    if kind == "onesignal":
        with suppress(InvalidInputError):
            unused |= {
                f"tags {str(tag)[:_LONGEST_ZONE]}"
                for tag, value in _tags_of(row).items()
                if not is_attribute(tag, value)
            }
    if kind == "onesignal" and "timezone" not in columns and _zone_of(row) is None:
        unused |= {f"{name} {str(row[name])[:_LONGEST_ZONE]}" for name in ("timezone", "timezone_id") if row.get(name)}
    return unused


def installation(row: Row, kind: str, columns: Mapping[str, str], usual: Mapping[str, str]) -> Installation:
    """Return a phone of a file; `columns` says which column a field is in, `usual` what the file does not say."""
    given = FORMATS[kind](row)
    given |= own({name: row[column] for name, column in columns.items() if column in row})
    given = {**usual, **{name: value for name, value in given.items() if value is not None}}
    if given.get("provider") not in WITH_ENVIRONMENT and "environment" not in row:
        given.pop("environment", None)
    if not given.get("token"):
        raise InvalidInputError("token must be given.")
    if "installation_id" in given:
        try:
            given["installation_id"] = UUID(str(given["installation_id"]))
        except ValueError:
            raise InvalidInputError("installation_id must be a UUID.") from None
    return Installation(**given)


def _listed(ids: object) -> list[Any]:
    """Read the tokens of a notification: a list, as JSON or not, or one by itself."""
    if isinstance(ids, str) and ids.startswith("["):
        try:
            ids = json.loads(ids)
        except (ValueError, RecursionError):
            return []
    return ids if isinstance(ids, list) else [ids]


def _service(said: str, known: Mapping[str, tuple[str, str]], name: str = "platform") -> tuple[str, str]:
    if said.lower() not in known:
        raise InvalidInputError(f"{name} must be one of {', '.join(known)}.")
    return known[said.lower()]


def _yes_or_no(name: str, said: object) -> bool:
    match str(said).lower():
        case "true" | "t" | "1" | "yes":
            return True
        case "false" | "f" | "0" | "no":
            return False
    raise InvalidInputError(f"{name} must be true or false.")
