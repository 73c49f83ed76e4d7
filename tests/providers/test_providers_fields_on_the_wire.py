"""The table of what reaches which phones, held against what providers really write."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import pytest

from relevo.config import Settings
from relevo.core.messages import WrittenMessage
from relevo.core.model import Content, Lane
from relevo.core.push_fields import ROUTES, TABLE, Cell, Route
from relevo.core.push_overrides import platform_field
from relevo.delivery.composing import rendering
from relevo.providers.apns import message as apns_message
from relevo.providers.expo import message as expo_message
from relevo.providers.fcm import message as fcm_message
from relevo.providers.push_projects import PushProjects
from relevo.providers.webpush import message as webpush_message
from support import native

TOKENS = {"expo": "ExpoPushToken[ana]", "apns": "ab" * 32, "webpush": "{}"}
"""Where any word will not do."""
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
    "image": "https://example.com/b.png",
    "link": "https://example.com/orders/17",
    "actions": [{"id": "track", "title": "Track it", "icon": "/track.png", "link": "/orders/17/track"}],
    "richContent": {"image": "https://example.com/a.png"},
    "mutableContent": True,
    "contentAvailable": True,
    "_contentAvailable": True,
    "_displayInForeground": True,
}
OVERRIDES: dict[str, Any] = {
    "android": {
        "color": "#2244ff",
        "ticker": "Ding",
        "clickAction": "OPEN_ORDER",
        "sticky": True,
        "localOnly": True,
        "directBootOk": True,
        "visibility": "PRIVATE",
        "notificationPriority": "PRIORITY_HIGH",
        "titleLocKey": "t",
        "titleLocArgs": ["1"],
        "bodyLocKey": "b",
        "bodyLocArgs": ["2"],
    },
    "apns": {
        "launchImage": "start",
        "titleLocKey": "t",
        "titleLocArgs": ["1"],
        "subtitleLocKey": "s",
        "subtitleLocArgs": ["2"],
        "locKey": "b",
        "locArgs": ["3"],
    },
    "web": {
        "badgeIcon": "/b.png",
        "requireInteraction": True,
        "renotify": True,
        "silent": True,
        "vibrate": [100, 50],
        "lang": "es",
        "dir": "ltr",
        "timestamp": 1_800_000_000_000,
        "urgency": "very-low",
    },
}
"""By platform, what it has for itself."""
GIVEN |= {
    f"{platform}.{name}": {platform: {name: value}}
    for platform, fields in OVERRIDES.items()
    for name, value in fields.items()
}
CHANGED = {
    "data.actions": "data.actions",
    "data.actions, buttons by categoryId": "data.actions",
    "actions beside aps, buttons by categoryId": "actions",
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
    elif isinstance(value, str) and value.startswith("{"):  # JSON within a text
        yield from flat(json.loads(value), path)
    else:
        yield path.lower(), value


def wire(route: Route, push: dict[str, Any], *, composed: bool, lane: Lane = "bulk", **texts: str) -> Wire:
    """Return what a provider sends of an event to a phone of a route, written once for all or by itself."""
    content = Content(5, texts.get("title", "Hola"), texts.get("body", "¿Qué tal?"), {"order": 17}, push)
    phone = {"provider": route.provider, "platform": route.platform}
    draft = rendering.draft(content, lane, ios=route.platform == "ios", default_ttl_s=3_600, **phone)
    delivery = native.delivery(TOKENS.get(route.provider, "ana"), route.provider, platform=route.platform)
    plain = draft.message(delivery)
    match route.provider:
        case "expo":
            return dict(flat(plain if composed else read(expo_message.writer(draft, "expo"), delivery)))
        case "apns":
            made = apns_message.ApnsMessage(apns_message.write(draft.fields, draft.data, "apns"), draft, delivery)
            headers, raw = apns_message.plain(plain) if composed else (made.headers(), made.body())
        case "webpush":
            assert not webpush_message.is_silent(draft.fields)
            once = webpush_message.write(draft.fields, draft.data, "webpush")
            written = webpush_message.WebPushMessage(once, draft, delivery)
            _, headers, raw = webpush_message.posted(plain if composed else written)
        case name:
            adapter = import_module(f"relevo.providers.{name}.provider").make(PushProjects(None), Settings(), None)
            message = plain if composed else adapter.writer(draft, route.platform)(delivery)
            return dict(flat(json.loads(adapter._ready(message, route.platform))))
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
    told = field.rpartition(".")[2] if cell.where == "same" else CHANGED.get(cell.where, cell.where)
    return f".{told.lower()}."


def pushed(name: str) -> dict[str, Any]:
    """Return the push that has one field."""
    return dict(GIVEN[name]) if "." in name else {name: GIVEN[name]}


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
    """Whatever the table says of a field is what the provider writes.

    Expo gets all that it knows, and itself drops for a platform.
    """
    column = ROUTES.index(route)
    bare = wire(route, {}, composed=composed)
    for field in FIELDS:
        name, cell = field.removeprefix("push."), TABLE[field][column]
        differ = differing(wire(route, pushed(name), composed=composed), bare)
        if cell.how == "dropped" and (route.provider != "expo" or "." in name):
            assert not differ, field
        else:
            assert is_at(place(field, cell if cell.where else Cell("kept", "same")), differ), (field, differ)


@each_way
@each_route
def test_all_fields_at_once(route: Route, composed: bool) -> None:
    """No field drives another one out."""
    column = ROUTES.index(route)
    together = {name: value for name, value in GIVEN.items() if "." not in name}
    whole = wire(route, together | OVERRIDES, composed=composed)
    for field in FIELDS:
        if field == "push.web.vibrate":
            continue  # browsers show no push that vibrates and is silent
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


@each_way
@each_route
def test_a_platform_s_field_takes_the_place_of_the_common_one(route: Route, composed: bool) -> None:
    """One event has an icon, link and sound for Android, for browsers and for iPhones; no phone gets another's."""
    by = {
        "android": {"icon": "ic_order", "link": "shop://17", "sound": "ding"},
        "apns": {"link": "shop://ios/17", "sound": "bell.caf"},
        "web": {"icon": "/order.png", "link": "https://shop.example/17"},
    }
    mine = platform_field(route.provider, route.platform)
    assert mine is not None
    common = {"icon": "common", "link": "/17", "sound": "common.wav", "tag": "t"}
    sent = wire(route, common | by, composed=composed)
    assert sent == wire(route, common | by[mine], composed=composed)
    assert wire(route, by[mine], composed=composed) == wire(route, by, composed=composed)
    assert differing(sent, wire(route, common, composed=composed))


@each_way
@pytest.mark.parametrize("provider", ["webhook", "mine"])
def test_a_provider_of_your_own_gets_every_field(provider: str, composed: bool) -> None:
    """What Relevo does not know how to send is handed over as the event has it."""
    push = {"link": "/17", "image": "/a.png", "web": {"icon": "/order.png"}}
    draft = rendering.draft(Content(5, "A", "b", {}, push), "bulk", ios=False, default_ttl_s=60, provider=provider)
    assert push.items() <= draft.fields.items()
    assert "url" not in draft.data


@each_way
@each_route
def test_quiet_hours_leave_nothing_loud(route: Route, composed: bool) -> None:
    """A push without a sound neither vibrates nor stays on the screen, whatever its platform's fields say."""
    push = {name: {**fields} for name, fields in OVERRIDES.items()}
    push["web"] |= {"silent": False}
    for fields in push.values():
        fields |= {"priority": "high"}
    push["android"] |= {"sound": "ding"}
    push["apns"] |= {"sound": "ding", "interruptionLevel": "critical"}
    content = Content(5, "Hola", "", {}, push)
    phone = {"provider": route.provider, "platform": route.platform}
    ios = route.platform == "ios"
    draft = rendering.draft(content, "bulk", ios=ios, default_ttl_s=60, quiet_channel="quiet", **phone)
    said = dict(flat(draft.fields))
    loud = ("sound", "vibrate", "renotify", "requireinteraction", "notificationpriority", "urgency")
    assert not [path for path in said if path.endswith(loud)]
    assert (said[".priority"], said[".interruptionlevel"]) == ("normal", "passive")
    if route.provider == "webpush":
        payload = json.loads(webpush_message.write(draft.fields, draft.data, "webpush").head + b"}}")
        assert payload["silent"] is True
    if (route.provider, route.platform) == ("fcm", "web"):
        text = fcm_message.plain(draft.message(native.delivery("ana", "fcm", platform="web")), "web")
        assert json.loads(text)["message"]["webpush"]["notification"]["silent"] is True


@pytest.mark.parametrize("provider", ["webhook", "mine"])
def test_quiet_hours_of_a_provider_of_your_own(provider: str) -> None:
    """What gets the fields of every platform gets none that makes a sound, and no channel but the quiet one."""
    loud = {"sound": "ding", "priority": "high", "interruptionLevel": "critical", "channelId": "loud"}
    push = {**loud, "android": {**loud, "color": "#2244ff"}, "apns": {**loud, "threadId": "17"}}
    draft = rendering.draft(
        Content(5, "A", "b", {}, push), "urgent", ios=False, default_ttl_s=60, quiet_channel="quiet", provider=provider
    )
    assert (draft.fields["android"], draft.fields["apns"]) == ({"color": "#2244ff"}, {"threadId": "17"})
    assert not {"ding", "high", "critical", "loud"} & {value for _, value in flat(draft.fields)}


@each_way
def test_buttons_in_browsers(composed: bool) -> None:
    """Browsers show actions as buttons; Web Push has each with its link, for the service worker to open."""
    by_label = {route.label: wire(route, pushed("actions"), composed=composed) for route in ROUTES}
    assert by_label["Web Push"][".actions"] == GIVEN["actions"]
    shown = {"action": "track", "title": "Track it", "icon": "/track.png"}
    assert by_label["FCM, web"][".message.webpush.notification.actions"] == [shown]


def test_fcm_takes_no_link_but_https() -> None:
    """FCM refuses a message whose link is not https, so such a link is in its data alone."""
    [web] = [route for route in ROUTES if route.label == "FCM, web"]
    sent = wire(web, {"link": "/orders/17"}, composed=False)
    assert sent[".message.data.url"] == "/orders/17"
    assert not [path for path in sent if "fcm_options" in path]
