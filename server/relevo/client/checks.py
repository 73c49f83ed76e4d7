"""Checks of an event before a statement is sent; the SQL functions make the same checks with the same words."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime
from decimal import Decimal
from types import NoneType
from typing import Any
from uuid import UUID

from relevo.client import tokens
from relevo.client.push_rules import MOST_TTL_S, is_within, push_complaint
from relevo.core import traceparents
from relevo.core.errors import InvalidInputError

_MAX_DEPTH = 100
_MOST_IDS = 2**63
_MAX_COMPLAINT = 1_000
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_SHOWN = re.compile(
    "[^\t-\r\x1c-\x20\x85\xa0\u00ad\u1680\u180e\u2000-\u200f\u2028\u2029\u202f\u205f\u2060\u3000\ufeff]"
)
_MOST_BITS = 3_400  # some thousand digits; of more than 4,300 Python writes none
_MOST_STRANGERS, _MOST_OF_NAME = 5, 60
_MOST_BYTES = 4096
_ADDED_BYTES_AT_MOST = 700
_HEAVIEST_CHAR = 6  # a control character, as JSON writes it
_MOST_NAMED = 100_000
_LANES = ("urgent", "bulk")
_PLATFORMS = ("ios", "android", "web", "unknown")
_PERMISSIONS = ("granted", "denied", "undetermined")
_RESERVED = "relevo."
_UUID = re.compile("[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_NOBODY = str(UUID(int=0))
DELIVERY = "now|hourly|(daily|weekly (mon|tue|wed|thu|fri|sat|sun)) ([01][0-9]|2[0-3]):[0-5][0-9]"
"""When a preference is told, as a pattern."""
_MOST_MONTO = 999_999_999_999_999_999
_MOST_TYPE, _MOST_KEY, _MOST_TITLE, _MOST_BODY = 100, 300, 500, 2000
_MOST_COLLAPSE = 64
_ATTRIBUTE = re.compile("[A-Za-z][A-Za-z0-9_.-]{0,49}")
_MOST_ATTRIBUTES, _MOST_ATTRIBUTE_TEXT, _MOST_ATTRIBUTE_NUMBER = 50, 200, 10**15
_TEXTS = {
    "type": (1, _MOST_TYPE),
    "key": (1, _MOST_KEY),
    "category": (1, 100),
    "collapse": (1, _MOST_COLLAPSE),
    "project": (1, 200),
    "title": (0, _MOST_TITLE),
    "body": (0, _MOST_BODY),
}
_BATCH_TEXTS = {"key": (1, _MOST_COLLAPSE), "title": (0, _MOST_TITLE), "body": (0, _MOST_BODY)}
_MATCHING_TEXTS = {"region": (0, 200), "tipo": (0, 100), "text": (0, 20_000)}

_EVENT_FIELDS = {
    *("type", "key", "title", "body", "data", "push", "audience", "installations", "owners", "matching", "topics"),
    *("category", "lane", "at_most_once", "scheduled_at", "deadline_at", "ttl_s", "licitacion_id", "on_conflict"),
    *("arguments", "collapse", "batch", "project", "where", "traceparent"),
}

_PLAIN_TEXTS = {"type", "key", "title", "body"}
_PLAIN_FIELDS = _PLAIN_TEXTS | {"data", "push", "audience", "installations", "owners"}

_ALWAYS_STORABLE = (bool, datetime, UUID, NoneType)
_CONTAINERS = (dict, list, tuple)
_JSON_KEYS = (str, int, float, NoneType)


def quoted(value: object) -> str:
    """Return the beginning of what was given, for a complaint."""
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return "a number of too many digits"  # Python refuses to write it
    return repr(str(value)[:_MOST_OF_NAME])


def is_blank(said: str) -> bool:
    """Return whether a text shows nothing: it is empty, or white space and characters without width."""
    return not _SHOWN.search(said)


def check_storable(name: str, value: object, depth: int = 0) -> None:
    """Refuse, by its name, what PostgreSQL has no place for; no statement is sent, and the transaction survives."""
    if type(value) in _ALWAYS_STORABLE or (type(value) is str and not _UNSTORABLE.search(value)):
        return  # most are, and `match` costs a lot more
    if (
        type(value) in _CONTAINERS and not value
    ):  # only of these: whether it is empty, an array of others refuses to say
        return
    match value:
        case int() if value.bit_length() > _MOST_BITS:
            raise InvalidInputError(f"{name} is a number of too many digits.", hint="Give it as text.")
        case str() if found := _UNSTORABLE.search(value):
            what = "a NUL character" if found[0] == "\0" else "half a character (a lone surrogate)"
            raise InvalidInputError(f"{name} holds {what}.", hint="Remove it and try again.")
        case float() | Decimal() if not (value.is_finite() if isinstance(value, Decimal) else math.isfinite(value)):
            raise InvalidInputError(f"{name} must be a finite number.", hint="Leave it out if it is not known.")
        case Mapping() | list() | tuple() if depth >= _MAX_DEPTH:
            raise InvalidInputError(f"{name} is nested too deeply.", hint=f"At most {_MAX_DEPTH} levels are allowed.")
        case Mapping():
            _check_mapping(name, value, depth)
        case list() | tuple():
            for inner in value:
                check_storable(name, inner, depth + 1)


def given_fields(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was given of some fields, which is not None; refuse what PostgreSQL has no place for."""
    given = {name: value for name, value in asked.items() if value is not None}
    for name, value in given.items():
        check_storable(name, value)
    return given


def _check_mapping(name: str, value: Mapping[Any, object], depth: int) -> None:
    for key, inner in value.items():
        if not isinstance(key, _JSON_KEYS):
            kind = type(key).__name__
            raise InvalidInputError(f"{name} has a key that is no text, of type {kind}.", hint="Give it as text.")
        place = f"{name}.{key[:50] if isinstance(key, str) else quoted(key)}"
        check_storable(place, key, depth)
        check_storable(place[:200], inner, depth + 1)


def check_event(event: Mapping[str, Any]) -> None:
    """Refuse an event, as the SQL functions take it, with the first thing that is wrong with it."""
    refuse(next(_complaints(event), None))


def is_plain_event(event: Mapping[str, Any]) -> bool:
    """Return whether nothing is wrong with a usual event, as the SQL functions take it, but maybe with its data.

    Of any other it says nothing: `check_storable` and `check_event` find the words. It earns 11 % of the row
    enqueue_many of `make bench ARGS="--only enqueue"`, run with it and without in turns.
    """
    return (
        _PLAIN_FIELDS >= event.keys() >= _PLAIN_TEXTS
        and _are_plain(event["type"], event["key"], event["title"], event["body"])
        and type(event.get("data")) is dict
        and event.get("push") == {}
        and _is_light(event)
        and next(_audience(event), None) is None
    )


def _are_plain(kind: object, key: object, title: object, body: object) -> bool:
    """Return whether PostgreSQL can store an event's texts, and each is of a fitting length."""
    if not (type(kind) is str and type(key) is str and type(title) is str and type(body) is str):
        return False
    said = f"{kind}{key}{title}{body}"
    return (
        len(kind) <= _MOST_TYPE
        and len(key) <= _MOST_KEY
        and len(title) <= _MOST_TITLE
        and len(body) <= _MOST_BODY
        and (said.isprintable() or not _UNSTORABLE.search(said))
        and "" not in (kind.strip(" "), key.strip(" "))
        and not is_blank(title)
        and not kind.startswith(_RESERVED)
    )


def check_installation(installation: Mapping[str, Any]) -> None:
    """Refuse an installation, as the SQL functions take it; what only the database knows is left to it."""
    refuse(next(_installation_complaints(installation), None))


def check_preference(preference: Mapping[str, Any]) -> None:
    """Refuse a preference, as the SQL functions take it, with the first thing that is wrong with it."""
    refuse(next(_preference_complaints(preference), None))


def is_attribute(name: object, value: object) -> bool:
    """Return whether this could be an attribute of that name."""
    return isinstance(name, str) and bool(_ATTRIBUTE.fullmatch(name)) and _is_attribute(value)


def check_attributes(place: str, given: object) -> None:
    """Refuse attributes that are none, as the SQL functions do."""
    refuse(next(_attribute_complaints(place, given), None))


def check_name(name: object) -> None:
    """Refuse the name of a preference that is none."""
    refuse(next(texts({"name": "" if name is None else name}, {"name": (1, 100)}), None))


def refuse(complaint: str | None) -> None:
    """Raise a complaint, if there is one."""
    if complaint is not None:
        if len(complaint) > _MAX_COMPLAINT:
            complaint = complaint[: _MAX_COMPLAINT - 3] + "..."
        raise InvalidInputError(f"{complaint}.", hint="Nothing was sent to the database; correct it and try again.")


def _complaints(event: Mapping[str, Any]) -> Iterator[str]:
    if unknown := event.keys() - _EVENT_FIELDS:
        yield f"an event has no field {_listed(unknown)}"
    yield from (f"{name} must be given" for name in ("type", "key") if not str(event.get(name) or "").strip(" "))
    yield from texts(event, _TEXTS)
    if event["type"].startswith(_RESERVED):
        yield "type must not begin with relevo., which is for Relevo itself"
    for name in ("data", "push", "arguments", "batch"):
        if not isinstance(event.get(name) or {}, Mapping):
            yield f"{name} must be a JSON object"
    yield from _says_nothing(event)
    if (wrong := push_complaint(event.get("push") or {})) is not None:
        yield wrong
    yield from _audience(event)
    if event.get("batch") is not None:
        yield from _batch(event)
    if event.get("lane", "bulk") not in _LANES:
        yield "lane must be urgent or bulk"
    if not isinstance(event.get("at_most_once", False), bool):
        yield "at_most_once must be true or false"
    yield from number(event, "ttl_s", 1, MOST_TTL_S, whole=True)
    yield from _traceparent(event)
    yield from _deadline(event)
    if not _is_light(event) and weight(event) > _MOST_BYTES:
        yield "title, body, data and push together must fit into 4096 bytes once rendered"


def _traceparent(event: Mapping[str, Any]) -> Iterator[str]:
    given = event.get("traceparent")
    if given is not None and not traceparents.is_traceparent(str(given)):
        good = f"traceparent must be as W3C Trace Context writes it, such as {traceparents.EXAMPLE}"
        yield f"{good}, got {str(given)[:_MOST_OF_NAME]}"


def _says_nothing(event: Mapping[str, Any]) -> Iterator[str]:
    said = event.get("title", "") + event.get("body", "")
    if event.get("arguments") is not None and said:
        yield "an event has arguments, for the texts of its type, or a title and body of its own, not both"
    if event.get("arguments") is None and is_blank(said) and not event.get("data"):
        yield "an event must say something: give it a title, a body or data"


def _listed(strangers: AbstractSet[str]) -> str:
    """Name some fields that nobody has; there may be many, of whatever length."""
    some = ", ".join(name[:_MOST_OF_NAME] for name in sorted(strangers)[:_MOST_STRANGERS])
    return some if len(strangers) <= _MOST_STRANGERS else f"{some} and {len(strangers) - _MOST_STRANGERS} more"


def _deadline(event: Mapping[str, Any]) -> Iterator[str]:
    """Complain about a deadline before the event's own time; of one that is past the database judges.

    For it knows whether this is the same event again, which is answered, however late.
    """
    if "deadline_at" not in event or "scheduled_at" not in event:
        return
    if datetime.fromisoformat(event["deadline_at"]) <= datetime.fromisoformat(event["scheduled_at"]):
        yield f"deadline_at must lie after now and after scheduled_at, got {event['deadline_at']}"


def _audience(event: Mapping[str, Any]) -> Iterator[str]:
    if len(event.get("installations") or ()) > _MOST_NAMED:
        yield f"installations must name at most {_MOST_NAMED} of them"
    yield from texts_in_list(event, "owners", _MOST_NAMED, 200)
    yield from texts_in_list(event, "topics", 100, 100)
    if event.get("topics") and event["audience"] != "matching":
        yield "topics are looked for in preferences: with topics, audience must be matching"
    if event.get("matching"):
        yield from _matching(event["matching"])
    if event.get("where") is not None:
        yield from _attribute_complaints("where", event["where"], is_audience=True)


def _batch(event: Mapping[str, Any]) -> Iterator[str]:
    if unknown := event["batch"].keys() - _BATCH_TEXTS.keys():
        yield f"batch has no field {_listed(unknown)}: it has a key, a title and a body"
    if event["audience"] not in ("installations", "owners"):
        yield "batch is for events for given installations or owners: leave it out"
    yield from texts(event["batch"], _BATCH_TEXTS, "batch.")


def _matching(matching: Mapping[str, Any]) -> Iterator[str]:
    yield from texts_in_list(matching, "rubros", 2000, 100, "matching.")
    yield from texts(matching, _MATCHING_TEXTS, "matching.")
    yield from number(matching, "monto", 0, _MOST_MONTO, place="matching.")
    if not re.fullmatch("[A-Z]{3}", str(matching.get("moneda", "CLP"))):
        yield "matching.moneda must be a currency of three capital letters, such as CLP"


def _attribute_complaints(place: str, given: object, *, is_audience: bool = False) -> Iterator[str]:
    if not isinstance(given, Mapping):
        yield f'{place} must be an object of attributes, such as {{"plan": "pro"}}'
        return
    if is_audience and not given:
        yield f'{place} must name an attribute, such as {{"plan": "pro"}}'
    names = sorted(given, key=str)
    if len(names) > _MOST_ATTRIBUTES:
        yield f"{place} must have at most {_MOST_ATTRIBUTES} attributes"
    for name in names:
        if not (isinstance(name, str) and _ATTRIBUTE.fullmatch(name)):
            yield (
                f"{place} has an attribute {str(name)[:60]}: a name is a letter and up to 49 letters, digits, dots, "
                "dashes and underscores"
            )
    for name in sorted(given, key=str):
        if not ((given[name] is None and not is_audience) or _is_attribute(given[name])):
            yield (
                f"{place}.{name} must be text of 1 to 200 characters, a number below 10^15, true, false or a list of "
                "1 to 50 texts"
            )


def _is_attribute(value: object) -> bool:
    match value:
        case bool():
            return True
        case str():
            return 1 <= len(value) <= _MOST_ATTRIBUTE_TEXT
        case int() | float() | Decimal():
            return -_MOST_ATTRIBUTE_NUMBER < value < _MOST_ATTRIBUTE_NUMBER
        case list() | tuple():
            texts = all(isinstance(each, str) and 1 <= len(each) <= _MOST_ATTRIBUTE_TEXT for each in value)
            return 1 <= len(value) <= _MOST_ATTRIBUTES and texts
    return False


def _installation_complaints(given: Mapping[str, Any]) -> Iterator[str]:
    yield from texts(given, {"provider": (1, 40), "project": (1, 200), "locale": (1, 35), "owner": (1, 200)})
    if not _UUID.fullmatch(given.get("installation_id", _NOBODY)):
        yield "installation_id must be a UUID"
    if not isinstance(given.get("push_capable", True), bool):
        yield "push_capable must be true or false"
    yield from tokens.complaints(given)
    yield from texts_in_list(given, "opt_outs", 100, 100)
    if given.get("attributes") is not None:
        yield from _attribute_complaints("attributes", given["attributes"])
    if given.get("platform", "unknown") not in _PLATFORMS:
        yield "platform must be ios, android, web or unknown"
    if given.get("permission", "granted") not in _PERMISSIONS:
        yield "permission must be granted, denied or undetermined"


def _preference_complaints(given: Mapping[str, Any]) -> Iterator[str]:
    yield from texts(given, {"tipo": (1, 100), "region": (1, 200)})
    if not isinstance(given.get("enabled", True), bool):
        yield "enabled must be true or false"
    yield from number(given, "monto_min", 0, _MOST_MONTO)
    yield from number(given, "monto_max", 0, _MOST_MONTO)
    yield from texts_in_list(given, "keywords", 20, 100)
    yield from texts_in_list(given, "topics", 100, 100)
    if "monto_min" in given and "monto_max" in given and given["monto_min"] > given["monto_max"]:
        yield "monto_min must not be above monto_max"
    if not re.fullmatch("[A-Z]{3}", str(given.get("moneda", "CLP"))):
        yield "moneda must be a currency of three capital letters, such as CLP"
    if not re.fullmatch("[0-9A-Za-z-]{1,20}", str(given.get("rubro_prefix", "0"))):
        yield "rubro_prefix must be the first 1 to 20 letters, digits or dashes of a code"
    if not re.fullmatch(DELIVERY, str(given.get("delivery", "now"))):
        yield ("delivery must be now, hourly, daily HH:MM or weekly DAY HH:MM, such as daily 08:00 or weekly mon 08:00")


def texts(given: Mapping[str, Any], limits: Mapping[str, tuple[int, int]], place: str = "") -> Iterator[str]:
    """Complain about fields that are not text of a fitting length."""
    for name, (fewest, most) in limits.items():
        value = given.get(name)
        if value is not None and not (isinstance(value, str) and fewest <= len(value) <= most):
            yield f"{place}{name} must be text of {fewest} to {most} characters"


def texts_in_list(given: Mapping[str, Any], name: str, most: int, chars: int, place: str = "") -> Iterator[str]:
    """Complain about a field that is not a list of texts of a fitting length."""
    value = given.get(name)
    if value is None:
        return
    listed = isinstance(value, list | tuple) and len(value) <= most
    if not listed or not all(isinstance(each, str) and 1 <= len(each) <= chars for each in value):
        yield f"{place}{name} must be a list of at most {most} texts of 1 to {chars} characters"


def number(
    given: Mapping[str, Any], name: str, low: int, high: int, *, whole: bool = False, place: str = ""
) -> Iterator[str]:
    """Complain about a field that is not a number within bounds, or not a whole one where it must be."""
    value = given.get(name)
    if value is not None and not is_within(value, low, high, whole=whole):
        yield f"{place}{name} must be a {'whole ' if whole else ''}number between {low} and {high}"


def _is_light(event: Mapping[str, Any]) -> bool:
    """Return whether an event without fields for the push is so short that its size need not be counted."""
    if event.get("push"):
        return False
    chars = len(event.get("title", "")) + len(event.get("body", ""))
    data = event.get("data")
    return (
        chars * _HEAVIEST_CHAR + (len(json.dumps(data, default=str)) if data else 0)
        < _MOST_BYTES - _ADDED_BYTES_AT_MOST
    )


def weight(event: Mapping[str, Any]) -> int:
    """Return the bytes of an event's push with everything that a delivery adds, as the SQL functions count it."""
    added = {
        "notificationEventId": 2**63 - 1,
        "notificationDeliveryId": 2**63 - 1,
        "installationId": str(UUID(int=0)),
        "pushProvider": "expo",
    }
    rendered = {
        **(event.get("push") or {}),
        "to": "x" * 64,
        "title": event.get("title", ""),
        "body": event.get("body", ""),
        "ttl": MOST_TTL_S,
        "priority": "high",
        "sound": "default",
        "tag": "x" * 40,
        "collapseId": "x" * 40,
        "data": {**(event.get("data") or {}), **added},
    }
    added_key = 0 if event.get("collapse") is None else _MOST_COLLAPSE
    return len(json.dumps(rendered, ensure_ascii=False, default=str).encode()) + added_key


def check_between(name: str, value: object, low: int, high: int, hint: str) -> None:
    """Refuse what is no whole number between two others."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidInputError(f"{name} must be between {low} and {high}.", hint=hint)


def id_of(name: str, value: object, hint: str) -> int:
    """Return the number of an event or a delivery; refuse what can be none."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < _MOST_IDS:
        raise InvalidInputError(f"{name} must be a whole number above 0, got {quoted(value)}.", hint=hint)
    return value


def uuid_of(name: str, value: object, hint: str) -> str:
    """Return the text of an installation's UUID; refuse what is none."""
    if not isinstance(value, UUID):
        raise InvalidInputError(f"{name} must be the UUID of an installation, got {quoted(value)}.", hint=hint)
    return str(value)


def time_of(name: str, value: object, hint: str) -> str:
    """Return the text of a time; refuse what is none, or lacks its zone."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise InvalidInputError(f"{name} must be a datetime with its zone, got {quoted(value)}.", hint=hint)
    return value.isoformat()


def check_one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    """Refuse what is none of these."""
    if value not in known:
        raise InvalidInputError(
            f"{name} must be {', '.join(known[:-1])} or {known[-1]}, got {quoted(value)}.", hint="Mend it."
        )
