"""Erasure: after `relevo forget` nothing leads to the person, in no table and no exported file."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pyarrow.parquet as pq
import pytest

from relevo.client import consent, inboxes, verbs
from relevo.client.values import Enqueued, Event, Installation, Owners, Preference
from relevo.core.errors import NotFoundError
from relevo.core.model import Answer, PushRequest
from relevo.operators import event_types
from relevo.operators.event_types import TypeSettings
from relevo.verbs import owners, phones
from relevo.verbs.callers import operator
from support.old_months import (
    add_old_deliveries,
    add_old_event,
    clean_up,
    export,
    month_ago,
    token,
)
from support.phones import fan_out

OLD = month_ago(5)
OWNER, LOCALE, WISH, WORDS = "persona-7781", "mi-NZ-x-rare", "palabra-rarisima", "Su hora con la doctora Violeta"


def search_tables(conn: psycopg.Connection[Any], needle: str) -> list[str]:
    """Name every table, hot or cold, that has a row in which the text stands."""
    tables = conn.execute(
        "select c.oid::regclass::text from pg_class c where c.relkind = 'r' and c.relnamespace::regnamespace::text like 'relevo%%'"
    ).fetchall()
    found = []
    for (table,) in tables:
        row = conn.execute(f"select count(*) from {table} t where t::text like %s", [f"%{needle}%"]).fetchone()
        if row != (0,):
            found.append(table)
    return found


def search_files(folder: Path, needle: str) -> list[str]:
    """Name every file of the archive in which the text stands, packed or not."""
    found = []
    for path in folder.rglob("*"):
        if not path.is_file():
            continue
        text = path.read_bytes().decode(errors="replace")
        if path.suffix == ".parquet":
            text += str(pq.read_table(path).to_pylist())
        if needle in text:
            found.append(path.name)
    return found


def person(conn: psycopg.Connection[Any], push_token: str) -> UUID:
    """Register somebody with everything that leads to a person."""
    phone = verbs.register(conn, Installation(push_token, owner=OWNER, locale=LOCALE, platform="ios"))
    verbs.set_preference(conn, phone, "mine", Preference(keywords=[WISH]))
    return phone


def old_life(conn: psycopg.Connection[Any], phone: UUID) -> None:
    """Give the person a past: a personal event, and a delivery of it."""
    event = add_old_event(
        conn,
        OLD,
        f"visit-{OWNER}",
        title=WORDS,
        body=WORDS,
        data=f'{{"who": "{OWNER}"}}',
        audience="installations",
        match_words=f" {WORDS} ",
        match_region=WORDS,
    )
    conn.execute("insert into relevo.event_audience values (%s, %s)", [event, phone])
    add_old_deliveries(conn, OLD, 5, event=event)
    conn.execute(
        "update relevo.notification_deliveries set installation_id = %s where id = (select min(id) from relevo.notification_deliveries)",
        [phone],
    )


@pytest.mark.parametrize("by", ["phone", "owner"])
def test_nothing_leads_to_a_person_who_was_forgotten(build, conn, folder_settings, tmp_path, by) -> None:
    """Token, owner, locale, wishes and words are in no table and no file, also of a month that was archived, and of what
    their inbox kept of it; what is cold keeps a random key."""
    app, push_token = build(archive_part_rows=10, **folder_settings), token()
    event_types.set_event_type(
        app.database, app.settings, "tender.new", TypeSettings(inbox_days=3_650, inbox=by == "owner")
    )
    phone = person(conn, push_token)
    old_life(conn, phone)
    if by == "owner":
        assert inboxes.mark_inbox_before(
            conn, owner=OWNER
        )  # there is an inbox, which a phone's forgetting leaves alone
    hot = verbs.enqueue(conn, Event("visit", "tomorrow", WORDS, WORDS, data={"who": OWNER}, audience=[phone]))
    conn.execute("update relevo.notification_events set match_words = %s where id = %s", [f" {WORDS} ", hot.event_id])
    assert clean_up(app).outcome == "ok"
    assert export(app).outcome == "ok"
    secret = push_token.removeprefix("ExponentPushToken[").removesuffix("]")
    assert search_tables(conn, OWNER)
    if by == "phone":
        assert phones.forget(operator(app.database), phone)
    else:
        assert "relevo.kept_inbox_items" in search_tables(conn, WORDS)
        assert owners.forget(operator(app.database), OWNER) == 1
    for needle in (secret, LOCALE, WISH, WORDS):
        assert search_tables(conn, needle) == [], needle
        assert search_files(tmp_path / "cold", needle) == [], needle
    assert search_tables(conn, OWNER) == []
    assert search_files(tmp_path / "cold", OWNER) == []
    assert f"relevo_archive.notification_deliveries_{OLD:%Y_%m}" in search_tables(conn, str(phone))
    status = verbs.get(conn, hot.event_id)
    assert status is not None
    assert (status.state, status.raw["title"]) == ("cancelled", "forgotten")
    with pytest.raises(NotFoundError):
        phones.forget(operator(app.database), phone)


def test_nothing_leads_to_an_owner_who_was_forgotten(build, conn) -> None:
    """Choices with the words that were shown, blocks with their reasons and marks of the inbox go with the owner's name."""
    app = build()
    person(conn, token())
    consent.set_category(conn, "offers")
    consent.choose(conn, "offers", owner=OWNER, wanted=True, words=WORDS)
    owners.block(operator(app.database), OWNER, WORDS, "shop")
    hot = verbs.enqueue(conn, Event("visit", "tomorrow", WORDS, audience=Owners(OWNER)))
    fan_out(app)
    assert inboxes.mark_inbox(conn, hot.event_id, "read", owner=OWNER)
    list(owners.export(operator(app.database), OWNER))
    assert len(search_tables(conn, OWNER)) >= 5
    owners.forget(operator(app.database), OWNER)
    assert [search_tables(conn, needle) for needle in (OWNER, LOCALE, WISH, WORDS)] == [[]] * 4


def test_a_personal_event_is_known_by_a_hash_once_it_is_archived(build, conn) -> None:
    """The same key is still the same event; neither it nor a hash of what was said is left, and public keys can be read."""
    key = "welcome:someone@example.com"
    event = add_old_event(conn, OLD, key, audience="installations", content_hash="of what was said")
    public = add_old_event(conn, OLD, "public")
    assert clean_up(build()).outcome == "ok"
    assert search_tables(conn, "someone@example.com") == []
    assert search_tables(conn, "of what was said") == []
    again = Event("tender.new", key, "Hello", audience=Owners("someone"))
    for _ in range(2):
        assert verbs.enqueue(conn, again) == Enqueued(event, created=False, same_content=None)
    assert verbs.enqueue(conn, Event("other.type", key, "Hello", audience="everyone")).created
    other = Event("tender.new", "public", "Hello", audience="everyone")
    assert verbs.enqueue(conn, other, on_conflict="keep") == Enqueued(public, created=False, same_content=False)
    rows = conn.execute("select event_id, event_key, content_hash from relevo.event_keys order by 1").fetchall()
    digest = sha256(f"tender.new\n{key}".encode()).hexdigest()
    assert rows == [(event, f"sha256:{digest}", ""), (public, "public", "hash")]
    for name in (event, ("tender.new", key)):
        status = verbs.get(conn, name)
        assert status is not None
        assert (status.id, status.key) == (event, f"sha256:{digest}")


def test_a_forgotten_event_still_dedups_hot_and_archived(build, conn) -> None:
    """Whoever was forgotten is not greeted again by a retry: the key is the same event's, before and after its month left."""
    app, phone = build(), verbs.register(conn, Installation(token()))
    greeting = Event("welcome", "welcome:someone@example.com", "Hello", audience=[phone])
    event = verbs.enqueue(conn, greeting).event_id
    assert phones.forget(operator(app.database), phone)
    assert search_tables(conn, "someone@example.com") == []
    known = Enqueued(event, created=False, same_content=None, unknown_installations=(phone,))
    assert verbs.enqueue(conn, greeting) == known
    conn.execute(
        "update relevo.notification_events set ended_at = %(month)s, created_at = %(month)s, scheduled_at = %(month)s,"
        " deadline_at = null, swept_at = %(month)s where id = %(event)s",
        {"month": OLD, "event": event},
    )
    assert clean_up(app).counts["archived_events"] == 1
    assert verbs.enqueue(conn, greeting) == known
    assert conn.execute("select count(*) from relevo.notification_events").fetchone() == (0,)


def test_no_delivery_ever_holds_a_token(build, conn) -> None:
    """What a provider said is stored without the token that it named, whoever writes it: there is nothing to forget."""
    app, push_token = build(), token()
    phone = person(conn, push_token)
    recent = month_ago(1)
    add_old_deliveries(conn, recent, 3, status="pending")
    claim = app.claims.claim("dispatch", "default", "bulk")
    assert claim is not None
    app.claims.journal(claim, [PushRequest(uuid4(), claim.deliveries)])
    said = f'"{push_token}" is not for us'
    app.claims.settle(claim, [Answer(d.event_day, d.id, "failed", error_message=said) for d in claim.deliveries])
    told = {"relevo.failed_attempts", f"relevo.notification_deliveries_{recent:%Y_%m}"}
    assert set(search_tables(conn, "is not for us")) == told
    assert search_tables(conn, push_token) == ["relevo.device_installations"]
    assert phones.forget(operator(app.database), phone)
    assert search_tables(conn, push_token) == []


def test_what_was_said_to_others_too_stays(build, conn) -> None:
    """An event for two is still the other's; only the person is taken out of it."""
    app = build()
    phone = person(conn, token())
    other = verbs.register(conn, Installation(token()))
    event = verbs.enqueue(conn, Event("visit", "both", "Hello", audience=[phone, other])).event_id
    assert phones.forget(operator(app.database), phone)
    status = verbs.get(conn, event)
    assert status is not None
    assert (status.state, status.raw["title"]) == ("waiting", "Hello")
    assert conn.execute("select installation_id from relevo.event_audience").fetchall() == [(other,)]


def test_personal_words_never_reach_the_cold_schema(build, conn) -> None:
    """Title, body, data, key and reason of a personal event stay behind when it is moved; others keep theirs."""
    personal = add_old_event(conn, OLD, "visit-1", title=WORDS, data='{"a": 1}', audience="installations")
    public = add_old_event(conn, OLD, "public-1", title="Puente")
    assert clean_up(build()).outcome == "ok"
    rows = conn.execute(
        f"select id, event_key, title, body, data, push from relevo_archive.notification_events_{OLD:%Y_%m} order by id"
    ).fetchall()
    assert rows == [
        (personal, None, None, None, None, None),
        (public, "public-1", "Puente", "ñ", {}, {}),
    ]
