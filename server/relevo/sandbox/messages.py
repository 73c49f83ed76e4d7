"""Reading requests: bounded decompression, JSON, and the checks Expo makes before it takes anything."""

from __future__ import annotations

import json
import zlib
from typing import Any, NoReturn

from relevo.sandbox import answers
from relevo.sandbox.answers import invalid, refused
from relevo.sandbox.faults.tokens import is_token

MAX_BODY = 4 * 1024 * 1024
MAX_RECIPIENTS = 100
MAX_RECEIPTS = 1000
MAX_PAYLOAD = 4096

Message = dict[str, Any]
Recipients = list[tuple[str, Message]]


_TEXT, _FLAG, _WHOLE, _NUMBER, _OBJECT = (str,), (bool,), (int,), (int, float), (dict,)
_TYPES = {
    **dict.fromkeys(("title", "subtitle", "body", "priority", "channelId", "categoryId", "collapseId"), _TEXT),
    **dict.fromkeys(("icon", "tag", "threadId", "targetContentId", "filterCriteria", "interruptionLevel"), _TEXT),
    **dict.fromkeys(("mutableContent", "contentAvailable", "_contentAvailable", "_displayInForeground"), _FLAG),
    **dict.fromkeys(("data", "richContent"), _OBJECT),
    **dict.fromkeys(("ttl", "expiration", "relevanceScore"), _NUMBER),
    "badge": _WHOLE,
    "sound": (str, dict),
}
_ALLOWED = {name: frozenset((*types, type(None))) for name, types in _TYPES.items()}
_CHOICES = {
    "priority": ("default", "normal", "high"),
    "interruptionLevel": ("active", "critical", "passive", "time-sensitive"),
}
_NAMES = {str: "a string", bool: "a boolean", int: "a whole number", float: "a number", dict: "an object"}


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_decode = json.JSONDecoder(parse_constant=_refuse_constant).decode
_encode_ascii = json.JSONEncoder(separators=(",", ":")).encode
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def unpack(body: bytes, encoding: str) -> bytes:
    """Return the body as it was before compression, never making more than MAX_BODY bytes of it."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "x-gzip"):
        raise refused(415, "UNSUPPORTED_ENCODING", "A body may be compressed with gzip only.")
    unzip = zlib.decompressobj(wbits=31)
    try:
        plain = unzip.decompress(body, MAX_BODY + 1)
    except zlib.error:
        raise refused(400, "BAD_REQUEST", "The body is no gzip.") from None
    if len(plain) > MAX_BODY:
        raise answers.too_large(MAX_BODY)
    if not unzip.eof or unzip.unused_data:
        raise refused(400, "BAD_REQUEST", "The gzip body ends too early, or goes on after its end.")
    return plain


def parse(body: bytes) -> Any:
    """Read JSON, refusing what is none."""
    try:
        return _decode(body.decode())
    except (ValueError, RecursionError):
        raise refused(400, "BAD_REQUEST", "The body is no JSON in UTF-8.") from None


def read_send(body: bytes) -> tuple[Recipients, bool]:
    """Return a request's recipients, each with its message, and whether it was a lone one, answered without a list."""
    parsed = parse(body)
    lone = isinstance(parsed, dict)
    messages = [parsed] if lone else parsed
    if not isinstance(messages, list) or not messages:
        raise invalid("The body must be a message or a list with at least one.")
    if len(messages) > MAX_RECIPIENTS:
        raise answers.too_many("notifications", len(messages), MAX_RECIPIENTS)
    recipients: Recipients = []
    for index, message in enumerate(messages):
        _check(index, message)
        to = message["to"]
        if isinstance(to, str):
            recipients.append((to, message))
        else:
            lone = False
            recipients.extend((token, message) for token in to)
    if len(recipients) > MAX_RECIPIENTS:
        raise answers.too_many("notifications", len(recipients), MAX_RECIPIENTS)
    return recipients, lone


def _check(index: int, message: Any) -> None:
    if type(message) is not dict:
        raise invalid(f'"[{index}]" must be an object.')
    _check_to(index, message.get("to"))
    for name, value in message.items():
        allowed = _ALLOWED.get(name)
        if allowed is not None and type(value) not in allowed and not (int in allowed and _is_whole(value)):
            raise invalid(f'"[{index}].{name}" must be {" or ".join(_NAMES[each] for each in _TYPES[name])}.')
    for name, choices in _CHOICES.items():
        if message.get(name) is not None and message[name] not in choices:
            raise invalid(f'"[{index}].{name}" must be one of {", ".join(choices)}.')


def _is_whole(value: Any) -> bool:
    """Return whether a number is whole however it is written: 3.0 is, as JSON has but one kind of number."""
    return type(value) is float and value.is_integer()


def _check_to(index: int, to: Any) -> None:
    if isinstance(to, str):
        if not is_token(to):
            raise invalid(f'"[{index}].to" must be an Expo push token.')
    elif not isinstance(to, list) or not to:
        raise invalid(f'"[{index}].to" is required: an Expo push token, or a list of them.')
    elif not all(is_token(token) for token in to):
        raise invalid(f'"[{index}].to" must hold Expo push tokens only.')


def all_fit(body: bytes, count: int) -> bool:
    """Return quickly whether none of a request's messages can be too big; False means: look at each of them."""
    if len(body) <= MAX_PAYLOAD:
        return True
    # Each message has one "to", so it lies between the one before and the one behind its own.
    parts = body.split(b'"to"')
    return len(parts) == count + 1 and max(map(len, parts)) < MAX_PAYLOAD // 2


def is_too_big(message: Message) -> bool:
    """Return whether a message, without its recipients, is more than the 4096 bytes phones are sent."""
    # In ASCII a text is never shorter than in UTF-8: what fits so needs no second, slower look.
    if len(_encode_ascii(message)) <= MAX_PAYLOAD:
        return False
    payload = {name: value for name, value in message.items() if name != "to"}
    return len(_encode(payload).encode("utf-8", "surrogatepass")) > MAX_PAYLOAD


def read_receipt_ids(body: bytes) -> list[str]:
    """Return the ids a request asks receipts for."""
    parsed = parse(body)
    ids = parsed.get("ids") if isinstance(parsed, dict) else None
    if not isinstance(ids, list) or not all(isinstance(each, str) for each in ids):
        raise invalid('"ids" must be a list of strings.')
    if len(ids) > MAX_RECEIPTS:
        raise answers.too_many("receipts", len(ids), MAX_RECEIPTS)
    return ids
