"""Categories and choices as an app makes them: kept with their words, listed per locale, refused by name, forgotten."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

import relevo
from relevo.client import consent
from relevo.core.errors import InvalidInputError
from support.inboxes import sent
from support.phones import add_phones
from support.processes import eventually

RECORDS = """
select c.owner, c.channel, c.wanted, c.face, w.words from relevo.consents c
  left join relevo.consent_words w on w.owner = c.owner and w.project = c.project and w.digest = c.words_digest
 order by c.id
"""
TEXTS = {"en": {"name": "Offers", "sentence": "Once a week."}, "es": {"name": "Ofertas"}, "es-419": {"name": "Promos"}}


@pytest.fixture
def offers(conn: psycopg.Connection[Any]) -> str:
    """A category that is off."""
    relevo.set_category(conn, "offers", rule="off", texts=TEXTS)
    return "offers"


def listed(conn: psycopg.Connection[Any], **asked: Any) -> relevo.Category:
    """Return the only category."""
    [found] = relevo.list_categories(conn, **asked)
    return found


def records(conn: psycopg.Connection[Any]) -> list[Any]:
    """Return what was recorded of choices."""
    return conn.execute(RECORDS).fetchall()


def test_the_nearest_locale(conn: psycopg.Connection[Any], offers: str) -> None:
    """es-CL reads es-419, then es; what is not there reads English."""
    for locale, name in [
        ("en", "Offers"),
        ("en-GB", "Offers"),
        ("es", "Ofertas"),
        ("es-CL", "Promos"),
        ("de", "Offers"),
        (None, "Offers"),
    ]:
        assert listed(conn, locale=locale).name == name, locale


def test_a_choice_is_kept_with_its_words(conn: psycopg.Connection[Any], offers: str) -> None:
    """Each choice is a row with its words; the same again adds none, in whichever of the words it was confirmed by, or without words."""
    assert (listed(conn, owner="ana").push, listed(conn, owner="ana").chosen_at) == (False, None)
    words = "Yes, send me offers."
    assert relevo.choose(conn, offers, owner="ana", wanted=True, channel="push", words=words)
    assert not relevo.choose(conn, offers, owner="ana", wanted=True, channel="push", words=words)
    found = listed(conn, owner="ana")
    assert (found.push, found.web) == (True, False)
    assert found.chosen_at is not None
    assert relevo.choose(conn, offers, owner="ana", wanted=False)
    assert (listed(conn, owner="ana").push, listed(conn, owner="eva").push) == (False, False)
    assert records(conn) == [
        ("ana", "push", True, "app", words),
        ("ana", "push", False, "app", None),
        ("ana", "web", False, "app", None),
    ]
    assert not relevo.choose(conn, offers, owner="ana", wanted=False, channel="web")


def test_the_record_is_bounded_and_still_proves(conn: psycopg.Connection[Any], offers: str) -> None:
    """A category and channel have 20 rows: the first choice, the one that began what holds now, and the newest; the rest is counted, and words
    that no row needs are gone. Another owner's record, and the same owner's in another project, stay as they are."""
    relevo.choose(conn, offers, owner="ana", wanted=True, channel="web", words="The first.")
    relevo.choose(conn, offers, owner="eva", wanted=True, channel="web", words="The first.")
    relevo.choose(conn, offers, owner="ana", wanted=True, channel="web", words="The first.", project="shop")
    for number in range(100):
        relevo.choose(conn, offers, owner="ana", wanted=bool(number % 2), channel="web", words=f"Toggled, {number}.")
    relevo.choose(conn, offers, owner="ana", wanted=False, channel="web", words="The end.")
    for number in range(100):
        assert relevo.choose(conn, offers, owner="ana", wanted=False, channel="web", words=f"Still no, {number}.")
    kept = relevo.export_owner(conn, "choices", owner="ana", project="default").items
    assert [item["words"] for item in kept] == [
        "The first.",
        "The end.",
        *(f"Still no, {number}." for number in range(82, 100)),
    ]
    assert [item["left_out"] for item in kept] == [182, *[0] * 19]
    assert conn.execute(
        "select owner, project, count(*) from relevo.consent_words group by 1, 2 order by 1, 2"
    ).fetchall() == [
        ("ana", "default", 20),
        ("ana", "shop", 1),
        ("eva", "default", 1),
    ]


def test_words_are_stored_once(conn: psycopg.Connection[Any], offers: str) -> None:
    """Words of two channels and of several answers are one row of their owner."""
    for wanted in (True, False, True):
        relevo.choose(conn, offers, owner="ana", wanted=wanted, words="x" * 2_000)
    assert len(records(conn)) == 6
    assert conn.execute("select count(*) from relevo.consent_words").fetchone() == (1,)


def test_channels_are_apart(conn: psycopg.Connection[Any]) -> None:
    """Refused for browsers, it still goes to phones; each phone knows what is its own."""
    relevo.set_category(conn, "offers")
    [phone] = add_phones(conn, 1, owner="ana")
    [browser] = add_phones(conn, 1, owner="ana", provider="webpush", part="push.example")
    relevo.choose(conn, "offers", owner="ana", wanted=False, channel="web")
    rows = conn.execute("select installation_id, refused from relevo.device_installations").fetchall()
    assert dict(rows) == {phone: [], browser: ["offers"]}


def test_projects_are_apart(conn: psycopg.Connection[Any]) -> None:
    """A choice holds in its project; a block without a project in all."""
    relevo.set_category(conn, "offers")
    add_phones(conn, 1, owner="ana")
    add_phones(conn, 1, owner="ana", project="shop")
    relevo.choose(conn, "offers", owner="ana", wanted=False, project="shop")
    relevo.block(conn, owner="ana", project="default")
    rows = "select project, refused, blocked from relevo.device_installations order by 1"
    assert conn.execute(rows).fetchall() == [("default", [], True), ("shop", ["offers"], False)]
    relevo.block(conn, owner="ana")
    assert [row[2] for row in conn.execute(rows).fetchall()] == [True, True]
    relevo.unblock(conn, owner="ana")
    assert [row[2] for row in conn.execute(rows).fetchall()] == [False, False]


REFUSED = [
    (lambda c: relevo.choose(c, "nothing", owner="ana", wanted=True), "there is no category nothing"),
    (lambda c: relevo.choose(c, "bills", owner="ana", wanted=False), "category bills is mandatory"),
    (lambda c: relevo.choose(c, "bills", owner="", wanted=True), "owner must be text of 1 to 200 characters"),
    (lambda c: relevo.choose(c, "bills", owner="a", wanted=1), "wanted must be True or False"),  # type: ignore[arg-type]
    (
        lambda c: relevo.choose(c, "bills", owner="a", wanted=True, words="x" * 2001),
        "words must be text of 1 to 2000",
    ),
    (lambda c: relevo.set_category(c, "x" * 101), "category must be text of 1 to 100 characters"),
    (lambda c: relevo.set_category(c, "a", rule="maybe"), "rule must be on, off or mandatory"),  # type: ignore[arg-type]
    (lambda c: relevo.set_category(c, "a", texts={"e n": {"name": "A"}}), "texts must be an object of locales"),
    (lambda c: relevo.set_category(c, "a", texts={"en": {"sentence": "A"}}), "texts of en: name must be text"),
    (lambda c: relevo.set_category(c, "a", texts={"en": {"name": "A", "x": "y"}}), "texts of en have no field x"),
    (lambda c: relevo.block(c, owner="a", reason="x" * 301), "reason must be text of 1 to 300 characters"),
    (lambda c: relevo.export_owner(c, "all", owner="a"), "kind must be installations"),  # type: ignore[arg-type]
    (lambda c: relevo.export_owner(c, "events", owner="a", after="x"), "after must be the `next` of another page"),
]


def test_what_is_wrong_is_named(conn: psycopg.Connection[Any]) -> None:
    """A wrong field is refused by name, and nothing is written."""
    relevo.set_category(conn, "bills", rule="mandatory")
    for call, said in REFUSED:
        with pytest.raises(InvalidInputError, match=said.replace("(", r"\(")):
            call(conn)
    assert records(conn) == []


def test_categories_are_bounded(conn: psycopg.Connection[Any]) -> None:
    """All locales of a category together have 100,000 characters at most, however many calls bring them; and there are 500 categories at most."""
    with pytest.raises(InvalidInputError, match="must have at most 100000 characters in all locales together"):
        add_locales(conn, 200)
    conn.execute("insert into relevo.categories (category) select 'c' || n from generate_series(1, 499) n")
    with pytest.raises(InvalidInputError, match="there are 500 categories"):
        relevo.set_category(conn, "one more")
    assert not relevo.set_category(conn, "c1", rule="off")


def add_locales(conn: psycopg.Connection[Any], many: int) -> None:
    """Bring the texts of a category locale by locale."""
    for number in range(many):
        texts = {f"en-{number:08}": {"name": "N" * 100, "sentence": "S" * 500}}
        relevo.set_category(conn, "offers", texts=texts)


def test_a_phone_registered_meanwhile(conn: psycopg.Connection[Any], dsn: str) -> None:
    """A phone that is registered while its owner chooses has the choice, whoever commits first."""
    relevo.set_category(conn, "offers")
    blocked = "select count(*) from pg_locks where not granted"
    with psycopg.connect(dsn, autocommit=True) as other, psycopg.connect(dsn, autocommit=True) as watching:
        with conn.transaction():
            relevo.choose(conn, "offers", owner="ana", wanted=False)
            registering = threading.Thread(target=register_one, args=(other,))
            registering.start()
            eventually(lambda: watching.execute(blocked).fetchone() == (1,))
        registering.join()
    assert conn.execute("select refused from relevo.device_installations").fetchall() == [(["offers"],)]


def register_one(conn: psycopg.Connection[Any]) -> None:
    """Register a phone of ana's."""
    relevo.register(conn, relevo.Installation("ExponentPushToken[x]", owner="ana"))


def test_export_and_forget(conn: psycopg.Connection[Any], offers: str) -> None:
    """Everything of an owner is exported page by page, tokens shortened; nothing of it is there once they are forgotten."""
    phones = [
        relevo.register(conn, relevo.Installation(f"ExponentPushToken[{n}abcdef]", owner="ana")) for n in range(3)
    ]
    relevo.choose(conn, offers, owner="ana", wanted=True, words="Yes, please.")
    relevo.block(conn, owner="ana")
    relevo.enqueue(conn, relevo.Event("order", "1", title="Your order", audience=relevo.Owners("ana")))
    first = relevo.export_owner(conn, "installations", owner="ana", limit=2)
    assert [item["installation_id"] for item in first.items] == [str(phone) for phone in phones[:2]]
    assert all("abcdef" not in str(item) for item in first.items)
    rest = relevo.export_owner(conn, "installations", owner="ana", after=first.next)
    assert [item["installation_id"] for item in rest.items] == [str(phones[2])]
    assert rest.next is None
    [event] = relevo.export_owner(conn, "events", owner="ana").items
    assert event["title"] == "Your order"
    assert {item["words"] for item in relevo.export_owner(conn, "choices", owner="ana").items} == {"Yes, please."}
    assert len(relevo.export_owner(conn, "rules", owner="ana").items) == 2
    relevo.forget(conn, owner="ana")
    assert {kind: relevo.export_owner(conn, kind, owner="ana").items for kind in consent.KINDS} == dict.fromkeys(
        consent.KINDS, ()
    )


def test_an_export_has_nothing_of_a_phones_former_owner(conn: psycopg.Connection[Any]) -> None:
    """What a phone got while it was another's is in that one's past, and not in the export of whoever has it now."""
    phone = relevo.register(conn, relevo.Installation("ExponentPushToken[a]", owner="ana"))
    sent(conn, [phone], "For ana alone")
    assert [item["title"] for item in relevo.export_owner(conn, "deliveries", owner="ana").items] == ["For ana alone"]
    relevo.register(conn, relevo.Installation("ExponentPushToken[a]", phone, owner="eva"))
    assert relevo.export_owner(conn, "deliveries", owner="eva").items == ()
    sent(conn, [phone], "For eva")
    assert [item["title"] for item in relevo.export_owner(conn, "deliveries", owner="eva").items] == ["For eva"]


def test_a_long_list_of_phones_waits_for_a_choice(conn: psycopg.Connection[Any], dsn: str) -> None:
    """Phones that are registered by the hundred while their owner chooses have the choice, too."""
    relevo.set_category(conn, "offers")
    new = [relevo.Installation(f"ExponentPushToken[{n}]", owner="ana") for n in range(21)]
    blocked = "select count(*) from pg_locks where not granted"
    with psycopg.connect(dsn, autocommit=True) as other, psycopg.connect(dsn, autocommit=True) as watching:
        with conn.transaction():
            relevo.choose(conn, "offers", owner="ana", wanted=False)
            registering = threading.Thread(target=relevo.register_many, args=(other, new))
            registering.start()
            eventually(lambda: watching.execute(blocked).fetchone() == (1,))
        registering.join()
    assert conn.execute("select distinct refused from relevo.device_installations").fetchall() == [(["offers"],)]
