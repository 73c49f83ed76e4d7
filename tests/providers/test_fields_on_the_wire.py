"""The table of what reaches which phones, held against what providers really write."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import native
from relevo.core.messages import WrittenMessage
from relevo.core.model import Content, Lane
from relevo.core.push_fields import ROUTES, TABLE, Cell, Route
from relevo.delivery import rendering
from relevo.providers import apns_message, expo_message, fcm_message, webpush_message

TOKENS = {"expo": "ExpoPushToken[ana]", "fcm": "ana", "apns": "ab" * 32, "webpush": "{}"}
GIVEN: dict[str, Any] = {
    "subtitle": "A subtitle",
    "sound": "bell.wav",
    "badge": 7,
    "expiration": 1_900_000_000,
    "interruptionLevel": "time-sensitive",
    "relevanceScore": 0.75,
    "channelId": "orders",
    "categoryId": "reply",
    "collapseId": "order-17",
    "threadId": "orders-17",
    "targetContentId": "window-1",
    "filterCriteria": "work",
    "tag": "order-17",
    "icon": "bell",
    "richContent": {"image": "https://example.com/a.png"},
    "mutableContent": True,
    "contentAvailable": True,
    "_contentAvailable": True,
    "_displayInForeground": True,
}
CHANGED = {
    "data, every value as text": "data.order",
    "beside aps": "order",
    "Topic, as a hash": "topic",
    "beside aps, for the app's extension": "richContent.image",
}
Wire = dict[str, Any]
"""By its dotted path, every value that is sent: headers and body."""


@pytest.fixture(autouse=True)
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold the time: some services are told an instant."""
    monkeypatch.setattr("time.time", lambda: 1_800_000_000.0)


def flat(value: object, path: str = "") -> Iterator[tuple[str, Any]]:
    """Name every value by its path."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from flat(inner, f"{path}.{key}")
    else:
        yield path.lower(), value


def wire(route: Route, push: dict[str, Any], *, composed: bool, lane: Lane = "bulk", **texts: str) -> Wire:
    """Return what a provider sends of an event to a phone of a route, written once for all or by itself."""
    content = Content(5, texts.get("title", "Hola"), texts.get("body", "¿Qué tal?"), {"order": 17}, push)
    draft = rendering.draft(content, lane, ios=route.platform == "ios", default_ttl_s=3_600)
    delivery = native.delivery(TOKENS[route.provider], route.provider, platform=route.platform)
    plain = draft.message(delivery)
    match route.provider:
        case "expo":
            return dict(flat(plain if composed else read(expo_message.writer(draft, "expo"), delivery)))
        case "fcm":
            body = fcm_message.plain(plain, route.platform) if composed else None
            written = fcm_message.write(draft.fields, draft.data, route.platform, "fcm")
            return dict(flat(json.loads(body or fcm_message.FcmMessage(written, draft, delivery).json())))
        case "apns":
            made = apns_message.ApnsMessage(apns_message.write(draft.fields, draft.data, "apns"), draft, delivery)
            headers, raw = apns_message.plain(plain) if composed else (made.headers(), made.body())
        case _:
            assert not webpush_message.is_silent(draft.fields)
            once = webpush_message.write(draft.fields, draft.data, "webpush")
            written = webpush_message.WebPushMessage(once, draft, delivery)
            _, headers, raw = webpush_message.posted(plain if composed else written)
    return dict(flat({**dict(headers), **json.loads(raw)}))


def read(writer: Any, delivery: Any) -> Any:
    """Return what a writer writes."""
    made = writer(delivery)
    assert isinstance(made, WrittenMessage)
    return json.loads(made.json())


def differing(with_it: Wire, without: Wire) -> set[str]:
    """Return where two messages differ."""
    return {path for path in with_it.keys() | without.keys() if with_it.get(path) != without.get(path)}


def place(field: str, cell: Cell) -> str:
    """Return where the table says that a field is."""
    told = field.removeprefix("push.") if cell.where == "same" else CHANGED.get(cell.where, cell.where)
    return f".{told.lower()}."


def is_at(place: str, paths: set[str]) -> bool:
    """Return whether one of the paths leads there, or below it."""
    return any(place in f"{path}." for path in paths)


FIELDS = [field for field in TABLE if field.removeprefix("push.") in GIVEN]
each_way = pytest.mark.parametrize("composed", [False, True], ids=["written", "composed"])
each_route = pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.provider}-{route.platform}")


def test_every_row_is_held_against_the_wire() -> None:
    """No row of the table is left out here."""
    own = {"title", "body", "data", "no title and no body", "ttl_s, deadline", "push.priority, lane", "collapse"}
    assert TABLE.keys() == {*FIELDS, *own}


@each_way
@each_route
def test_what_is_kept_is_on_the_wire_and_what_is_dropped_is_not(route: Route, composed: bool) -> None:
    """Whatever the table says of a field is what the provider writes; Expo gets all, and itself drops for a platform."""
    column = ROUTES.index(route)
    bare = wire(route, {}, composed=composed)
    for field in FIELDS:
        name, cell = field.removeprefix("push."), TABLE[field][column]
        differ = differing(wire(route, {name: GIVEN[name]}, composed=composed), bare)
        if cell.how == "dropped" and route.provider != "expo":
            assert not differ, field
        else:
            assert is_at(place(field, cell if cell.where else Cell("kept", "same")), differ), (field, differ)


@each_way
@each_route
def test_all_fields_at_once(route: Route, composed: bool) -> None:
    """No field drives another one out."""
    column = ROUTES.index(route)
    whole = wire(route, GIVEN, composed=composed)
    for field in FIELDS:
        if (cell := TABLE[field][column]).how != "dropped":
            assert is_at(place(field, cell), set(whole)), field


@each_way
@each_route
def test_texts_data_and_lifetime(route: Route, composed: bool) -> None:
    """Title, body, data and time to live are where the table says."""
    column = ROUTES.index(route)
    usual = wire(route, {}, composed=composed)
    for field, other in {
        "title": wire(route, {}, composed=composed, title="Other"),
        "body": wire(route, {}, composed=composed, body="Other"),
        "ttl_s, deadline": wire(route, {"ttl": 60}, composed=composed),
    }.items():
        assert is_at(place(field, TABLE[field][column]), differing(other, usual)), field
    spot = place("data", TABLE["data"][column])
    [order] = [value for path, value in usual.items() if spot in f"{path}." and path.endswith(".order")]
    assert order == ("17" if TABLE["data"][column].how == "changed" else 17)


@each_way
@each_route
def test_priority_is_the_events_own_or_that_of_its_lane(route: Route, composed: bool) -> None:
    """`high` and the urgent lane differ from `normal` where the table says; what an event says wins over its lane.

    The urgent lane is time-sensitive on iOS, too, unless the event says otherwise.
    """
    spot = place("", TABLE["push.priority, lane"][ROUTES.index(route)])
    high = wire(route, {"priority": "high"}, composed=composed)
    normal = wire(route, {"priority": "normal"}, composed=composed)
    assert is_at(spot, differing(high, normal))
    level = {"interruptionLevel": "time-sensitive"} if route.platform == "ios" else {}
    urgent = wire(route, {"priority": "high", **level}, composed=composed)
    assert wire(route, {}, composed=composed, lane="urgent") == urgent
    calm = {"priority": "normal", "interruptionLevel": "active"}
    assert wire(route, calm, composed=composed, lane="urgent") == wire(route, calm, composed=composed)


@each_way
@each_route
def test_the_usual_priority(route: Route, composed: bool) -> None:
    """Unless it is said, a push that is shown goes to iPhones at once, as by Expo, and elsewhere at normal priority."""
    usual = wire(route, {}, composed=composed)
    like = "high" if route.provider != "expo" and route.platform == "ios" else "normal"
    if route.provider == "expo":
        assert usual[".priority"] == "default"
    else:
        assert usual == wire(route, {"priority": like}, composed=composed)


@each_way
@each_route
def test_without_a_word(route: Route, composed: bool) -> None:
    """A silent push is for the app alone, in each service's own way; Web Push writes none."""
    cell = TABLE["no title and no body"][ROUTES.index(route)]
    if cell.how == "dropped":
        with pytest.raises(AssertionError):
            wire(route, {}, composed=False, title="", body="")
        return
    silent = wire(route, {}, composed=composed, title="", body="")
    assert not [path for path in silent if "notification." in path or "alert" in path or path == ".title"]
    expected = {
        "contentAvailable": (".contentavailable", True),
        "background": (".apns-push-type", "background"),
        "data alone": ("data.order", None),
    }[cell.where]
    [value] = [value for path, value in silent.items() if path.endswith(expected[0])]
    assert expected[1] in (None, value)


@each_way
@each_route
def test_a_collapse_key_is_where_the_table_says(route: Route, composed: bool) -> None:
    """Two events of one type and key bear the same id, tag or topic; each fits, however long the key is."""
    spot = place("", TABLE["collapse"][ROUTES.index(route)])
    bare, short = wire(route, {}, composed=composed), wire(route, {"collapse": "order:7"}, composed=composed)
    assert is_at(spot, differing(short, bare))
    [own] = [value for path, value in short.items() if spot in f"{path}."]
    if route.platform != "web":
        assert own == "order:7"
    [other] = [v for p, v in wire(route, {"collapse": "x" * 164}, composed=composed).items() if spot in f"{p}."]
    assert other != own
    assert len(other.encode()) <= (32 if route.platform == "web" else 64)
    assert not [path for path in short if path.endswith(".collapse")]


@each_way
@each_route
def test_a_push_says_whether_taps_are_wanted(route: Route, composed: bool) -> None:
    """Only the data of an event whose type asks for taps says so."""
    asking, bare = wire(route, {"opens": True}, composed=composed), wire(route, {}, composed=composed)
    assert {path.rpartition(".")[2] for path in differing(asking, bare)} == {"reportopened"}
