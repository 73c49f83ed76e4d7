"""Audiences by name are the ones that were given before, and fields of tenders leave the general names with a warning."""

from __future__ import annotations

import warnings
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
import pytest

import relevo
from relevo import (
    Event,
    Everyone,
    Installation,
    Matching,
    Owners,
    Phones,
    Preference,
    TenderMatching,
    TenderPreference,
    Topic,
)

TENDER: dict[str, Any] = {"rubros": ["72"], "region": "Maule", "tipo": "LE", "monto": Decimal(5), "moneda": "CLP"}
ASKED: dict[str, Any] = {
    "rubro_prefix": "72",
    "region": "Maule",
    "tipo": "LE",
    "monto_min": 5,
    "monto_max": 5,
    "moneda": "CLP",
}


def event(audience: Any, **more: Any) -> Event:
    """Make an event for an audience."""
    return Event("news", "1", "Hello", audience=audience, **more)


@pytest.fixture
def phones(conn: psycopg.Connection[Any]) -> dict[str, UUID]:
    """Two owners of one name, each with a phone in a project of its own, of which one asks for football."""
    found = {
        project: relevo.register(conn, Installation(f"ExponentPushToken[{project}]", owner="ana", project=project))
        for project in ("shop", "bank")
    }
    relevo.set_preference(conn, found["shop"], "football", Preference(topics=["football"]))
    return found


def reached(conn: psycopg.Connection[Any], made: Event) -> set[UUID]:
    """Return whom an event would reach."""
    return set(relevo.preview(conn, made).sample)


def test_each_name_reaches_whom_it_says(conn: psycopg.Connection[Any], phones: dict[str, UUID]) -> None:
    """Everyone, owners, phones and topics reach these phones, within the event's project alone if it names one."""
    shop, bank = phones["shop"], phones["bank"]
    assert reached(conn, event(Everyone())) == {shop, bank}
    assert reached(conn, event(Everyone(), project="bank")) == {bank}
    assert reached(conn, event(Owners("ana"), project="bank")) == {bank}
    assert reached(conn, event(Phones(shop))) == {shop}
    assert reached(conn, event(Phones(shop, bank), project="bank")) == {bank}
    assert reached(conn, event(Phones())) == set()
    assert reached(conn, event(Topic("football"))) == {shop}
    assert reached(conn, event(Topic("tennis", "football"))) == {shop}
    assert reached(conn, event(Topic("football"), project="bank")) == set()
    assert reached(conn, event(Topic("tennis"))) == set()


@pytest.mark.parametrize(
    ("now", "before", "topics"),
    [(Everyone(), "everyone", ()), (Topic("a", "b"), Matching(), ("a", "b")), (Phones(), [], ())],
)
def test_the_former_forms_stay(conn: psycopg.Connection[Any], now: Any, before: Any, topics: Any) -> None:
    """An event enqueued by a name is the same event as in the form before: its content does not conflict."""
    first = relevo.enqueue(conn, event(now))
    again = relevo.enqueue(conn, event(before, topics=topics))
    assert (again.event_id, again.created, again.same_content) == (first.event_id, False, True)


def test_topics_are_given_once(conn: psycopg.Connection[Any]) -> None:
    """Topics beside an audience of topics are refused, and so is what is no topic."""
    with pytest.raises(relevo.InvalidInputError, match="topics are given twice"):
        relevo.enqueue(conn, event(Topic("a"), topics=["b"]))
    with pytest.raises(relevo.InvalidInputError, match="topics must be a list"):
        relevo.enqueue(conn, event(Topic("")))
    with pytest.raises(relevo.InvalidInputError, match="audience must be Everyone, Owners, Phones, Topic or Matching"):
        relevo.enqueue(conn, event("all"))


@pytest.mark.parametrize("name", TENDER)
def test_a_tender_s_field_warns(name: str) -> None:
    """A field of tenders in Matching works and warns where it was written, with the name to use; TenderMatching takes it quietly."""
    with pytest.warns(DeprecationWarning, match=rf"{name} of relevo.Matching .* use relevo.TenderMatching") as told:
        given = Matching(**{name: TENDER[name]})
    assert told[0].filename == __file__
    assert vars(given) == vars(TenderMatching(**{name: TENDER[name]}))


@pytest.mark.parametrize("name", ASKED)
def test_a_tender_s_preference_warns(name: str) -> None:
    """The same of what a phone asks for."""
    with pytest.warns(DeprecationWarning, match=rf"{name} of relevo.Preference .* use relevo.TenderPreference") as told:
        given = Preference(**{name: ASKED[name]})
    assert told[0].filename == __file__
    assert vars(given) == vars(TenderPreference(**{name: ASKED[name]}))


def test_the_former_fields_still_work(conn: psycopg.Connection[Any], phones: dict[str, UUID]) -> None:
    """An event and a preference in the former words reach whom those in the new words reach."""
    relevo.set_preference(conn, phones["shop"], "default", None)
    relevo.set_preference(conn, phones["bank"], "default", TenderPreference(**ASKED))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        former = Matching(**TENDER)
        relevo.set_preference(conn, phones["shop"], "default", Preference(**ASKED))
    assert reached(conn, event(former)) == reached(conn, event(TenderMatching(**TENDER))) == set(phones.values())
