"""The fields that a push may have beside title, body and data: one table, and the checks of a push by it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeGuard

Rule = Mapping[str, Any]

MOST_TTL_S = 2_419_200
_COLOR = re.compile("#[0-9A-Fa-f]{6}")
_WORDS = {"boolean": "true or false", "object": "a JSON object", "color": "a color such as #2244ff"}
_MOST_ARGS, _MOST_PULSES = 10, 20

_WHOLE_BADGE: Rule = {"kind": "whole number", "low": 0, "high": 2_147_483_647}
_LINK: Rule = {"kind": "text", "most": 2000}
_ICON: Rule = {"kind": "text", "most": 500}
_TEXT_200: Rule = {"kind": "text", "most": 200}
_FLAG: Rule = {"kind": "boolean"}
_ARGUMENTS: Rule = {"kind": "list", "most": _MOST_ARGS, "each": _TEXT_200}

_COMMON: Mapping[str, Rule] = {
    "subtitle": {"kind": "text", "most": 500},
    "sound": {
        "kind": "text or object",
        "most": 100,
        "fields": {
            "name": {"kind": "text", "most": 100},
            "critical": _FLAG,
            "volume": {"kind": "number", "low": 0, "high": 1},
        },
    },
    "badge": {**_WHOLE_BADGE, "kind": "whole number or word", "word": "unread"},
    "ttl": {"kind": "whole number", "low": 0, "high": MOST_TTL_S},
    "expiration": {"kind": "whole number", "low": 0, "high": 253_402_300_799},
    "priority": {"kind": "choice", "of": ["default", "normal", "high"]},
    "interruptionLevel": {"kind": "choice", "of": ["active", "critical", "passive", "time-sensitive"]},
    "relevanceScore": {"kind": "number", "low": 0, "high": 1},
    "channelId": _TEXT_200,
    "categoryId": _TEXT_200,
    "collapseId": {"kind": "text", "most": 64},
    "threadId": _TEXT_200,
    "targetContentId": _TEXT_200,
    "filterCriteria": _TEXT_200,
    "tag": _TEXT_200,
    "icon": _ICON,
    "image": _LINK,
    "link": _LINK,
    "actions": {
        "kind": "list",
        "most": 4,
        "unique": "id",
        "each": {
            "kind": "object",
            "needs": ["id", "title"],
            "fields": {"id": {"kind": "text", "most": 100}, "title": _TEXT_200, "icon": _ICON, "link": _LINK},
        },
    },
    "richContent": {"kind": "object", "fields": {"image": {"kind": "text", "most": 2000}}},
    "mutableContent": _FLAG,
    "contentAvailable": _FLAG,
    "_contentAvailable": _FLAG,
    "_displayInForeground": _FLAG,
}


def _common(*names: str) -> dict[str, Rule]:
    """Return fields that a platform may have a value of its own for; how much is unread is no such value."""
    return {name: _WHOLE_BADGE if name == "badge" else _COMMON[name] for name in names}


_OWN: Mapping[str, Mapping[str, Rule]] = {
    "android": {
        "color": {"kind": "color"},
        "ticker": _TEXT_200,
        "clickAction": _TEXT_200,
        "sticky": _FLAG,
        "localOnly": _FLAG,
        "directBootOk": _FLAG,
        "visibility": {"kind": "choice", "of": ["PRIVATE", "PUBLIC", "SECRET"]},
        "notificationPriority": {
            "kind": "choice",
            "of": ["PRIORITY_MIN", "PRIORITY_LOW", "PRIORITY_DEFAULT", "PRIORITY_HIGH", "PRIORITY_MAX"],
        },
        "titleLocKey": _TEXT_200,
        "titleLocArgs": _ARGUMENTS,
        "bodyLocKey": _TEXT_200,
        "bodyLocArgs": _ARGUMENTS,
    },
    "apns": {
        "launchImage": _TEXT_200,
        "titleLocKey": _TEXT_200,
        "titleLocArgs": _ARGUMENTS,
        "subtitleLocKey": _TEXT_200,
        "subtitleLocArgs": _ARGUMENTS,
        "locKey": _TEXT_200,
        "locArgs": _ARGUMENTS,
    },
    "web": {
        "badgeIcon": _ICON,
        "requireInteraction": _FLAG,
        "renotify": _FLAG,
        "silent": _FLAG,
        "vibrate": {
            "kind": "list",
            "most": _MOST_PULSES,
            "each": {"kind": "whole number", "low": 0, "high": 10_000},
        },
        "lang": {"kind": "text", "most": 35},
        "dir": {"kind": "choice", "of": ["auto", "ltr", "rtl"]},
        "timestamp": {"kind": "whole number", "low": 0, "high": 253_402_300_799_000},
        "urgency": {"kind": "choice", "of": ["very-low", "low", "normal", "high"]},
    },
}
"""The fields of a platform beside the common ones, by the names of its push services."""

OVERRIDES: Mapping[str, Mapping[str, Rule]] = {
    "android": {**_OWN["android"]}
    | _common("sound", "badge", "priority", "channelId", "categoryId", "tag", "icon", "image", "link", "actions"),
    "apns": {**_OWN["apns"]}
    | _common("subtitle", "sound", "badge", "priority", "interruptionLevel", "relevanceScore", "categoryId")
    | _common("collapseId", "threadId", "targetContentId", "filterCriteria", "image", "link", "actions")
    | _common("mutableContent", "contentAvailable"),
    "web": {**_OWN["web"]} | _common("badge", "priority", "collapseId", "tag", "icon", "image", "link", "actions"),
}
"""By platform, the fields that an event may have for it alone."""

PUSH_FIELDS: Mapping[str, Rule] = {
    **_COMMON,
    **{platform: {"kind": "object", "fields": fields} for platform, fields in OVERRIDES.items()},
}
"""The fields that a push may have beside title, body and data. A test compares them with `relevo.push_fields()`."""


def push_complaint(given: Mapping[str, Any], rules: Mapping[str, Any] = PUSH_FIELDS, place: str = "push") -> str | None:
    """Return the fault of a push's fields, or None; a field of None counts as absent."""
    for name in sorted(given, key=str):
        if name not in rules:
            return f"{place} has no field {str(name)[:60]}; it may have {', '.join(sorted(rules))}"
        if given[name] is not None and (wrong := _complaint(given[name], rules[name], f"{place}.{name}")) is not None:
            return wrong
    return None


def _complaint(value: object, rule: Rule, place: str) -> str | None:
    if isinstance(value, Mapping) and "object" in rule["kind"]:
        if (wrong := push_complaint(value, rule["fields"], place)) is not None:
            return wrong
        missing = next((name for name in rule.get("needs", ()) if value.get(name) is None), None)
        return None if missing is None else f"{place}.{missing} must be given"
    if rule["kind"] == "list" and _is_filled(value, rule["most"]):
        return _list_complaint(value, rule, place)
    return None if _fits(value, rule) else f"{place} must be {wanted(rule)}"


def _is_filled(value: object, most: int) -> TypeGuard[Sequence[object]]:
    return isinstance(value, list | tuple) and 1 <= len(value) <= most and all(each is not None for each in value)


def _list_complaint(values: Sequence[object], rule: Rule, place: str) -> str | None:
    each = (_complaint(value, rule["each"], f"{place}.{number}") for number, value in enumerate(values))
    if (wrong := next((wrong for wrong in each if wrong is not None), None)) is not None:
        return wrong
    name = rule.get("unique")
    if name and len({value[name] for value in values if isinstance(value, Mapping)}) < len(values):
        return f"{place} must have another {name} in each entry"
    return None


def _fits(value: object, rule: Rule) -> bool:
    match rule["kind"]:
        case "text" | "text or object" | "color" if isinstance(value, str):
            return bool(_COLOR.fullmatch(value)) if rule["kind"] == "color" else 1 <= len(value) <= rule["most"]
        case "choice":
            return value in rule["of"]
        case "boolean":
            return isinstance(value, bool)
        case "whole number or word" if value == rule["word"]:
            return True
        case "number" | "whole number" | "whole number or word" as kind:
            return is_within(value, rule["low"], rule["high"], whole=kind != "number")
    return False


def is_within(value: object, low: float, high: float, *, whole: bool) -> bool:
    """Return whether a value is a number within bounds, and a whole one where it must be."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return False
    return bool(low <= value <= high and (not whole or value % 1 == 0))


def wanted(rule: Rule) -> str:
    """Return the values that a rule of the table allows, in words."""
    match rule["kind"]:
        case "text":
            return f"text of 1 to {rule['most']} characters"
        case "text or object":
            return f"text of 1 to {rule['most']} characters, or a JSON object"
        case "choice":
            return f"one of {', '.join(rule['of'])}"
        case "boolean" | "object" | "color":
            return _WORDS[rule["kind"]]
        case "list":
            return f"a list of 1 to {rule['most']} entries"
    kind, _, or_word = rule["kind"].partition(" or ")
    return f"a {kind} between {rule['low']} and {rule['high']}" + (f", or {rule[or_word]}" if or_word else "")
