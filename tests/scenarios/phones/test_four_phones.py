"""One event for somebody with an Expo phone, an Android phone, an iPhone and a browser: one timeline, a story each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from html import unescape
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from relevo.client import verbs
from relevo.client.values import Owners
from relevo.core import i18n, known_services
from relevo.core.sending_project import project_in_words
from relevo.operators import actions, deliveries, events
from relevo.operators.actions import DeadLetters
from relevo.providers.webpush.credentials import make_pair
from relevo.sandbox import Sandbox
from support import mixed_phones
from support.dashboard_person import Person
from support.http_server import Served
from support.mixed_phones import NATIVE_PHONES, ONE_OF_EACH, PARTS, SERVICE_OF, TRIALS
from support.processes import eventually
from support.sending_worker import Relay

LABELS = {kind: known_services.LABELS[SERVICE_OF[kind]] for kind in NATIVE_PHONES}
"""Those without receipts."""
GONE = {"expo": ("DeviceNotRegistered", "DeviceNotRegistered")} | {
    kind: (each.gone, each.gone_code or each.gone) for kind, each in TRIALS.items()
}
"""How phones are gone: the fault of the sandbox, and the code."""
DEAD = {"expo": ("MessageTooBig*1", "MessageTooBig")} | {
    kind: (f"{each.dead}*1", each.dead_code or each.dead) for kind, each in TRIALS.items()
}
"""What makes a dead letter, once: the fault, and the code."""


def words_for(code: str) -> tuple[str, str]:
    """Return what is said of a code in English and in Spanish."""
    english = known_services.CODES[code].means
    i18n.use_language("es")
    spanish = i18n.gettext(english)
    i18n.use_language("en")
    assert english not in ("", spanish), code
    return english, spanish


@pytest.fixture(scope="session")
def push_service() -> Iterator[Sandbox]:
    """The sandbox of these tests: Expo, FCM, APNs and Web Push."""
    with Sandbox(native=True, apns_token_interval_s=0) as running:
        yield running


@pytest.fixture
def worker(relay, sandbox) -> Relay:
    """A worker that sends by every push service."""
    made: Relay = relay(**mixed_phones.addresses(sandbox))
    return made


@pytest.fixture
def person(worker) -> Iterator[Person]:
    """Somebody who looks at the worker's dashboard."""
    served = Served(worker.app)
    served.start()
    someone = Person(served, "viewer")
    someone.log_in()
    yield someone
    served.close()


def says(person: Person, path: str, language: str) -> str:
    """Return what a page says in a language, without its markup."""
    answer = person.get(path, headers={"Accept-Language": language})
    assert answer.status_code == 200, path
    main = answer.text.split("<main", 1)[1].split("</main>")[0]
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", main)))


def give(worker: Relay, faults: Mapping[str, str]) -> dict[str, UUID]:
    """Register a phone of each kind for ana, and return them."""
    return {
        kind: verbs.register(
            worker.conn, mixed_phones.installation(worker.sandbox, kind, f"ana-{kind}", *words, owner="ana")
        )
        for kind in ONE_OF_EACH
        for words in [(faults[kind],) if kind in faults else ()]
    }


def tell(worker: Relay) -> int:
    """Enqueue an event for ana, and send it."""
    event = worker.enqueue(audience=Owners("ana"))
    worker.fan_out()
    worker.drain()
    return event


def found(worker: Relay, phones: Mapping[str, UUID]) -> dict[str, dict[str, Any]]:
    """Return the delivery to each kind of phone, with how often that was pushed to."""
    rows = {row["installation_id"]: row for row in worker.rows(
        "select d.*, i.token, i.invalidated_at from relevo.deliveries d join relevo.device_installations i using (installation_id)"
    )}  # fmt: skip
    return {
        kind: rows[phone] | {"received": mixed_phones.received(worker.sandbox, rows[phone]["token"])}
        for kind, phone in phones.items()
    }


def ends(worker: Relay, phones: Mapping[str, UUID]) -> dict[str, tuple[str, int]]:
    """Return each delivery's status, and how often its phone was pushed to."""
    return {kind: (row["status"], row["received"]) for kind, row in found(worker, phones).items()}


def test_each_phone_gets_it_once_in_its_own_way(worker, person, command) -> None:
    """Where there are no receipts, taken is the end and no row waits; that is said by service, in both languages.

    One timeline names all four requests; each phone's explanation is its own."""
    phones = give(worker, {})
    event = tell(worker)
    assert ends(worker, phones) == dict.fromkeys(ONE_OF_EACH, ("ok", 1)) | {"expo": ("sent", 1)}
    rows = found(worker, phones)
    awaited = worker.rows("select ids from relevo.awaited_receipts")
    assert [row["ids"] for row in awaited] == [[rows["expo"]["id"]]]
    for kind, label in LABELS.items():
        path = f"/dashboard/deliveries/{rows[kind]['id']}"
        assert says(person, path, "en").count(f"Accepted by {label}; {label} gives no receipts.") == 1
        assert f"Aceptado por {label}; {label} no entrega recibos." in says(person, path, "es")
        assert f"Accepted by {label}; {label} gives no receipts." in command("delivery", str(rows[kind]["id"])).out
        path = f"/dashboard/installations/{phones[kind]}?event={event}"
        assert f"Accepted by {label}; {label} gives no receipts." in says(person, path, "en")
        told = verbs.explain(worker.conn, event, phones[kind])
        assert (told.gets_it, told.rule, told.raw["delivery"]["provider"]) == (True, "owner", rows[kind]["provider"])
    story = events.story(worker.app.database, event)
    assert story is not None
    sent = [each.detail for each in story.moments if each.code == "request"]
    assert sorted(sent) == sorted(
        ["1 push: answered, all accepted", *(f"1 push by {label}: answered, all accepted" for label in LABELS.values())]
    )
    page, other = (says(person, f"/dashboard/events/{event}", language) for language in ("en", "es"))
    for label in LABELS.values():
        assert f" by {label} with 1 of its pushes" in page
        assert f" por {label} con 1 de sus notificaciones" in other
    owned = says(person, "/dashboard/owners/ana", "en")
    assert "Phone 1 , Phone 2 , Phone 3 , Phone 4 : Yes, it was sent." in owned, "one answer for four phones"
    assert owned.count("Yes, it was sent.") == 1
    worker.ask()
    assert ends(worker, phones) == dict.fromkeys(ONE_OF_EACH, ("ok", 1))


def test_each_failure_is_told_in_words(worker, person) -> None:
    """A phone of each kind is gone: each is given up, and its own story says why, in both languages; none is told twice."""
    phones = give(worker, {kind: fault for kind, (fault, _) in GONE.items()})
    event = tell(worker)
    rows = found(worker, phones)
    for kind, (_, code) in GONE.items():
        row, (english, spanish) = rows[kind], words_for(code)
        assert (row["status"], row["last_error_code"], row["received"]) == ("invalid", code, 0), kind
        assert row["invalidated_at"] is not None
        for path in (f"/dashboard/deliveries/{row['id']}", f"/dashboard/installations/{phones[kind]}?event={event}"):
            assert english in says(person, path, "en"), path
            assert spanish in says(person, path, "es"), path
        told = verbs.explain(worker.conn, event, phones[kind])
        assert (told.gets_it, told.raw["delivery"]["error_code"]) == (False, code)
    assert worker.dispatch().outcome == "idle"


def test_each_dead_letter_can_be_redriven(worker, person) -> None:
    """What failed for good by each push service is sent anew, arrives once, and its story keeps both tries."""
    phones = give(worker, {kind: fault for kind, (fault, _) in DEAD.items()})
    tell(worker)
    rows = found(worker, phones)
    assert {kind: (row["status"], row["last_error_code"]) for kind, row in rows.items()} == {
        kind: ("failed", code) for kind, (_, code) in DEAD.items()
    }
    assert worker.disabled() == 0
    assert actions.redrive(worker.app.database, DeadLetters(ids=[row["id"] for row in rows.values()])) == len(
        ONE_OF_EACH
    )
    worker.drain()
    worker.ask()
    assert ends(worker, phones) == dict.fromkeys(ONE_OF_EACH, ("ok", 1))
    for row in rows.values():
        seen = deliveries.push(worker.app.database, row["id"])
        assert seen is not None
        assert (len(seen.tries), len(seen.redriven)) == (2, 1)
        assert "sent it again." in says(person, f"/dashboard/deliveries/{row['id']}", "en")


def test_a_wrong_vapid_key_stops_browsers_alone(relay, sandbox, command, tmp_path: Path) -> None:
    """Browsers are bound to another key than the project has: their part's breaker opens and status names it; the other
    phones have their pushes at once, and mended, in the file alone, the browsers have theirs, once."""
    entries = json.loads(sandbox.projects_file.read_text())["default"]
    for entry in entries.values():
        entry.update({key: str(sandbox.projects_file.parent / entry[key]) for key in entry if key.endswith("_file")})
    other, file = tmp_path / "other.pem", tmp_path / "projects.json"
    for path, text in (
        (other, make_pair().private_pem),
        (file, json.dumps({"default": entries | {"webpush": entries["webpush"] | {"private_key_file": str(other)}}})),
    ):
        path.touch(mode=0o600)
        path.write_text(text)
    worker = relay(**mixed_phones.addresses(sandbox) | {"push_projects_file": file})
    phones = give(worker, {})
    more = [
        verbs.register(worker.conn, mixed_phones.installation(sandbox, "browser", f"more-{n}", owner="ana"))
        for n in range(5)
    ]
    tell(worker)
    assert ends(worker, phones) == dict.fromkeys(ONE_OF_EACH, ("ok", 1)) | {
        "expo": ("sent", 1),
        "browser": ("pending", 0),
    }
    assert {kind: worker.project(PARTS[kind])["breaker"] for kind in ONE_OF_EACH} == dict.fromkeys(
        ONE_OF_EACH, "closed"
    ) | {"browser": "open"}
    assert worker.disabled() == 0
    said = " ".join(command("status").out.split())
    assert f"project {project_in_words(PARTS['browser'])} has sent only probes" in said
    assert said.count("has sent only probes") == 1
    file.write_text(json.dumps({"default": entries}))
    browsers = {str(phone): phone for phone in [phones["browser"], *more]}

    def is_mended() -> bool:
        worker.travel(minutes=16)
        worker.drain()
        return set(ends(worker, browsers).values()) == {("ok", 1)}

    eventually(is_mended, "the file was read again, and a probe went well")
