"""Which field reaches which phones: the table is whole, and what a preview warns of is what it says."""

from __future__ import annotations

from importlib import import_module

import pytest

from relevo.client.checks import weight
from relevo.client.push_rules import OVERRIDES, PUSH_FIELDS
from relevo.core.known_services import CODES, EXPO, NATIVE, SERVICES
from relevo.core.push_fields import ROUTES, TABLE, TAKEN_FOR, cell, route_of, size_warnings, warnings
from relevo.core.push_overrides import LOUD, OWN, PLATFORM_FIELDS
from relevo.core.sending_project import SendingProject, project_in_words
from relevo.providers.http2.authorised import AuthorisedProvider
from relevo.providers.http2.provider import Http2Provider
from relevo.providers.webpush.encryption import MAX_PLAIN_BYTES


def test_every_field_has_a_row_and_every_row_every_route() -> None:
    """No field that an event may carry is missing, and no route."""
    names = {name for name in PUSH_FIELDS if name not in PLATFORM_FIELDS}
    assert PUSH_FIELDS.keys() - names == OVERRIDES.keys() == OWN.keys() == LOUD.keys()
    rows = {TAKEN_FOR.get(f"push.{name}", f"push.{name}") for name in names}
    assert rows <= TABLE.keys()
    for platform, fields in OVERRIDES.items():
        assert fields.keys() - names == OWN[platform].keys() >= LOUD[platform]
        assert {f"push.{platform}.{name}" for name in OWN[platform]} <= TABLE.keys()
    assert {len(row) for row in TABLE.values()} == {len(ROUTES)}
    for service in SERVICES.values():
        assert service.fields.keys() <= TABLE.keys(), service.name
        assert {len(cells) for cells in service.fields.values()} == {len(service.platforms)}, service.name


@pytest.mark.parametrize(
    ("kind", "label"),
    [
        (("expo", "ios"), "Expo, iOS"),
        (("expo", "unknown"), "Expo, Android"),
        (("fcm", None), "FCM, Android"),
        (("apns", "unknown"), "APNs"),
        (("webpush", "android"), "Web Push"),
        (("webhook", "unknown"), None),
    ],
)
def test_a_phone_has_one_column(kind: tuple[str, str | None], label: str | None) -> None:
    """Each phone is of one route, whatever is known of its platform; a webhook gets everything."""
    route = route_of(*kind)
    assert (route.label if route else None) == label


def test_what_is_lost_is_said_with_whom() -> None:
    """A field that reaches some phones alone is named once, with those that it does not reach."""
    event = {"title": "A", "push": {"subtitle": "B", "badge": None, "ttl": 5}, "data": {"order": 17}}
    kinds = [("expo", "ios"), ("fcm", "android"), ("webpush", "web"), ("webhook", None)]
    assert warnings(event, kinds) == [
        "push.subtitle does not reach FCM, Android; Web Push.",
        "FCM, Android get every value of data as text.",
    ]
    assert warnings({"data": {"a": "b"}}, kinds) == [
        "Web Push take no push without a title and a body: it is skipped there."
    ]
    assert warnings(event, [("expo", "ios")]) == []


def test_what_a_platform_s_fields_lose_is_said_for_its_phones() -> None:
    """A field for one platform is warned of for its phones alone, whether it is the platform's own or a common one."""
    kinds = [("expo", "android"), ("expo", "ios"), ("fcm", "android"), ("apns", None), ("webpush", "web")]
    push = {
        "android": {"color": "#2244ff", "icon": "ic", "badge": None},
        "apns": {"launchImage": "a", "threadId": "b"},
        "web": {"badgeIcon": "/b.png", "icon": "/i.png", "badge": 7},
    }
    assert warnings({"title": "A", "push": push}, kinds) == [
        "push.android.color does not reach Expo, Android.",
        "push.apns.launchImage does not reach Expo, iOS.",
    ]
    assert warnings({"title": "A", "push": {"web": {"collapseId": "x"}, "android": {"badge": 1}}}, kinds) == [
        "push.android.badge does not reach Expo, Android."
    ]


def test_buttons_that_a_phone_would_not_show_are_said() -> None:
    """Browsers show actions; iPhones show those of a category of the app; FCM shows none on Android."""
    kinds = [("expo", "ios"), ("fcm", "android"), ("apns", None), ("webpush", "web")]
    actions = [{"id": "track", "title": "Track it"}]
    nobody = "FCM, Android show no buttons by themselves: data has the actions."
    assert warnings({"title": "A", "push": {"actions": actions}}, kinds) == [
        nobody,
        "Expo, iOS; APNs show the buttons of push.categoryId, and none without it.",
    ]
    push = {"actions": actions, "apns": {"categoryId": "order"}}
    assert warnings({"title": "A", "push": push}, kinds) == [nobody]
    assert warnings({"title": "A", "push": {"web": {"actions": actions}}}, kinds) == []


def test_each_phone_is_weighed_with_its_own_fields() -> None:
    """What is for browsers makes no push to a phone too large."""
    event = {"title": "A", "push": {"web": {"link": "x" * 1_900, "icon": "y" * 400}}, "data": {"text": "z" * 1_400}}
    [told] = size_warnings(event, [("apns", None), ("webpush", "web")], weight)
    assert told.startswith("It may be too large for Web Push: ")


def test_what_may_be_too_large_is_said_with_whom() -> None:
    """Web Push takes fewer bytes than the others; data as text has more of them than it had."""
    kinds = [("expo", "ios"), ("fcm", "android"), ("apns", None), ("webpush", "web")]
    event = {"title": "A", "data": {"text": "x" * 3_400}}
    assert size_warnings(event, kinds, weight) == []
    event = {"title": "A", "data": {"text": "x" * (3_400 + 4_050 - weight(event))}}
    assert size_warnings(event, kinds, weight) == [
        "It may be too large for Web Push: it has about 4,050 bytes, and 3,993 are taken there."
    ]
    quotes = {"title": "A", "data": {"list": [""] * 700}}
    [told] = size_warnings(quotes, kinds, weight)
    assert told.startswith("It may be too large for FCM, Android: it has about ")


def test_the_table_of_services_is_that_of_the_providers() -> None:
    """Each push service has a provider that is sent by its facts: what previews warn of is what providers refuse."""
    for name in NATIVE:
        import_module(f"relevo.providers.{name}.provider")
    classes = [*Http2Provider.__subclasses__(), *AuthorisedProvider.__subclasses__()]
    made = {each.name: each.facts for each in classes if each is not AuthorisedProvider}
    assert {EXPO: SERVICES[EXPO].sending, **made} == {name: each.sending for name, each in SERVICES.items()}
    assert SERVICES["webpush"].max_bytes == MAX_PLAIN_BYTES


def test_a_code_means_the_same_in_every_push_service() -> None:
    """Pages tell an error code in words without asking whose it is: no push service gives it another meaning."""
    told = [(code, each.means) for service in SERVICES.values() for code, each in service.codes.items()]
    assert len(told) > len(CODES)
    assert {code: means for code, means in told if means != CODES[code].means} == {}


def test_what_is_changed_has_its_own_word() -> None:
    """FCM takes texts alone in data; Web Push makes a topic of a collapse id."""
    [fcm] = [route for route in ROUTES if route.label == "FCM, Android"]
    assert (cell("data", fcm).how, cell("push.tag", fcm).how, cell("push.threadId", fcm).how) == (
        "changed",
        "kept",
        "dropped",
    )


@pytest.mark.parametrize(
    ("text", "parsed", "words"),
    [
        ("@org/app", SendingProject("expo", "@org/app"), "@org/app"),
        ("fcm::shop::ios", SendingProject("fcm", "shop", "ios"), "FCM, shop, iOS"),
        ("fcm::@org/app::unknown", SendingProject("fcm", "@org/app", "unknown"), "FCM, @org/app, unknown"),
        ("apns::shop::sandbox", SendingProject("apns", "shop", "sandbox"), "APNs, shop, sandbox"),
        (
            "webpush::shop::fcm.googleapis.com",
            SendingProject("webpush", "shop", "fcm.googleapis.com"),
            "Web Push, shop, fcm.googleapis.com",
        ),
        ("fcm::a::b::ios", SendingProject("fcm", "a::b", "ios"), "FCM, a::b, iOS"),
        ("webhook::a::b", SendingProject("webhook", "a::b"), "webhook::a::b"),
    ],
)
def test_a_sending_project_is_read_and_written(text: str, parsed: SendingProject, words: str) -> None:
    """Its text and its parts are the same thing, and people read it in words."""
    assert SendingProject.parse(text) == parsed
    assert str(parsed) == text
    assert project_in_words(text) == words
