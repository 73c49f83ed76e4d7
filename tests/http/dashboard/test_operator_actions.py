"""What operators look up and do at the dashboard, without a browser: who may, what it says, what is recorded."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

from relevo.client import values, verbs
from relevo.operators import actions, audit, runs
from relevo.operators.actions import DeadLetters
from relevo.sandbox import Sandbox
from support.dashboard_person import NASTY, Person
from support.filled_dashboard import fill, kill, register, run
from support.http_server import EVENT, Served, fan_out, phone

SHORT = NASTY[:300]
LISTS = (
    "/dashboard/runs",
    "/dashboard/sources",
    "/dashboard/dead-letters",
    "/dashboard/archive",
    "/dashboard/audit",
)


def entries(served: Served, action: str) -> list[dict[str, Any]]:
    """Return what was recorded of one kind, newest first."""
    return audit.latest(served.app.database, action=action, limit=100)


def inside(page: Any) -> Person:
    """Log somebody in."""
    page.log_in()
    return page


def test_empty_lists_say_so(served: Served) -> None:
    """Where there is nothing, each list says it in words."""
    person = inside(Person(served, "viewer"))
    for path, words in zip(
        LISTS,
        (
            "No cycle has run yet",
            "No source has been read yet",
            "No delivery has failed for good",
            "No month has been archived",
            "login",
        ),
        strict=True,
    ):
        page = person.get(path)
        assert (page.status_code, words in page.text) == (200, True), path


def test_lists_by_page_and_by_filter(served: Served, conn: psycopg.Connection[Any]) -> None:
    """Every list leads to all of its rows, page by page; filters hold, also on later pages; a bad place is told."""
    fill(conn)
    person = inside(Person(served, "viewer"))
    for path, rows in (
        ("/dashboard/runs", 121),
        ("/dashboard/sources", 70),
        ("/dashboard/runs?ended=ok", 118),
        ("/dashboard/audit?action=redrive", 40),
    ):
        assert walk(person, path) == rows, path
    found = runs.page(served.app.database, outcome="failed", limit=2)
    assert [row["outcome"] for row in found.rows] == ["failed"] * 2
    assert len(runs.page(served.app.database, outcome="failed", before=found.next).rows) == 1
    assert "two@host" not in person.get("/dashboard/runs?worker=one@host").text.split("<tbody>")[1]
    assert "No run matches" in person.get("/dashboard/runs?cycle=nothing").text
    made = """insert into relevo.worker_runs (cycle, source, trigger, worker_id, started_at, finished_at, outcome)
              select 'ingest', s, 'manual', 'of-' || s, now(), now(), 'ok' from unnest(array['folder', 'ocds']) s"""
    conn.execute(made)
    conn.execute("insert into relevo.cycle_state (cycle, source) values ('ingest', 'folder'), ('ingest', 'ocds')")
    assert [walk(person, f"/dashboard/runs?cycle=ingest{name}") for name in (":folder", ":ocds", "")] == [1, 1, 2]
    assert "No entry matches" in person.get("/dashboard/audit?actor=nobody").text
    assert person.get("/dashboard/runs?before=9.9.9").status_code == 400
    assert person.get("/dashboard/runs?before=999999999999999999.1").status_code == 400
    assert person.get("/dashboard/runs/999").status_code == 404
    run = person.get(f"/dashboard/runs/{found.rows[0]['id']}").text
    assert all(words in run for words in ("notifications sent", "failed", "Previous run", "one@host"))
    told = re.sub("<[^>]+>", "", person.get("/dashboard/archive").text)
    assert "relevo archive restore --entity deliveries --month 2026-05" in told
    assert "120 / 10,000" in person.get("/dashboard/sources").text


def test_names_are_told_as_words(served: Served, conn: psycopg.Connection[Any]) -> None:
    """Counters and actions are words in the reader's language, with their names on hover; a cursor is told part by part."""
    fill(conn)
    actions.pause(served.app.database, "dispatch", "a drill")
    cursor = {"complete": "2026-11-15", "failed": {f"{n}-1-LE26": [1] for n in range(4)}, "own_mark": "<b>"}
    conn.execute("update relevo.source_state set cursor = %s", [Jsonb(cursor)])
    person = inside(Person(served))
    sources = person.get("/dashboard/sources").text
    for words in (
        '<span class="faint" title="complete">complete up to: </span>2026-11-15',
        '<span class="faint" title="failed">failed, to be asked again: </span>4 (',
        '<span class="faint" title="own_mark">own mark: </span>&lt;b&gt;',
    ):
        assert words in sources, words
    assert "{&quot;" not in sources
    person.get("/dashboard/language/es")
    assert '<span title="notifications_sent">notificaciones enviadas</span>' in person.get("/dashboard/runs").text
    assert 'title="pause">pausar</a>' in person.get("/dashboard/audit").text


def walk(person: Person, path: str) -> int:
    """Follow a list to its end, and return how many rows it had."""
    total = 0
    while path:
        page = person.get(path).text
        total += page.rsplit("<tbody>", 1)[1].count("<tr>")
        following = re.search(r'href="([^"]+)" rel="next"', page)
        path = following[1].replace("&amp;", "&") if following else ""
    return total


def test_hostile_text_stays_text(served: Served, conn: psycopg.Connection[Any]) -> None:
    """Markup from feeds, errors and reasons is shown, never run."""
    phone(conn)
    fill(conn, SHORT)
    kill(served, conn, message=SHORT)
    person = inside(Person(served))
    for path in (
        *LISTS,
        "/dashboard/runs?ended=failed",
        f"/dashboard/runs?worker={SHORT[:150]}",
        f"/dashboard/actions/release?project={SHORT[:200]}",
    ):
        page = person.get(path).text
        assert "<script>document" not in page, path
    assert "&lt;script&gt;" in person.get("/dashboard/dead-letters").text


def test_dead_letters_are_sent_again_after_a_look(served: Served, conn: psycopg.Connection[Any]) -> None:
    """The question says how many would be sent, how many not and why; only then, and only these, are opened again; it is recorded."""
    for _ in range(3):
        phone(conn)
    first = kill(served, conn)
    late = kill(served, conn, key="late")
    ended = kill(served, conn, key="ended")
    other = kill(served, conn, key="other", code="Other")
    conn.execute("update relevo.notification_events set deadline_at = now() where id = %s", [late])
    conn.execute(
        "update relevo.notification_events set state = 'cancelled', ended_at = now(), swept_at = now() where id = %s",
        [ended],
    )
    conn.execute(
        "update relevo.device_installations set active = false where seq = (select min(seq) from relevo.device_installations)"
    )
    person = inside(Person(served))
    page = person.get("/dashboard/dead-letters").text
    assert "The message is too long" in page
    assert "/dashboard/actions/redrive?code=MessageTooBig&amp;project=default&amp;type=order.shipped" in page
    question = person.get("/dashboard/actions/redrive?code=MessageTooBig&project=default&type=order.shipped").text
    told = re.sub(r"<[^>]+>", "", question)
    for words in (
        "2 deliveries would be sent again",
        "3 would not be sent: their deadline",
        "3 would be reopened and end unsent: their event",
        "1 would be reopened and end unsent: the phone",
    ):
        assert words in told, words
    assert entries(served, "redrive") == []
    one = conn.execute("select min(delivery_id) from relevo.dead_letters where event_id = %s", [other]).fetchall()[0][0]
    assert "1 delivery</strong> would be" in person.get(f"/dashboard/actions/redrive?delivery={one + 1}").text
    done = person.send("/dashboard/actions/redrive", code="MessageTooBig", project="default", type="order.shipped")
    assert "6 dead letters will be sent again" in done.text
    [entry] = entries(served, "redrive")
    assert (entry["outcome"], entry["target"]["error_code"], entry["result"]["answer"]) == ("ok", "MessageTooBig", 6)
    left = conn.execute("select event_id, count(*) from relevo.dead_letters group by 1 order by 1").fetchall()
    assert left == [(late, 3), (other, 3)]
    assert "No dead letter matches" in person.send("/dashboard/actions/redrive", code="none").text
    assert person.send("/dashboard/actions/redrive").status_code == 400
    assert first < late
    assert actions.dead_letters(served.app.database, DeadLetters(project="nobody")) == []


def test_cycles_are_paused_and_run_by_hand(served: Served) -> None:
    """A pause needs its reason, is told and recorded; a run tells what it did; unknown cycles are not found."""
    person = inside(Person(served))
    assert "Pause dispatch?" in person.get("/dashboard/actions/pause?cycle=dispatch").text
    assert person.send("/dashboard/actions/pause", cycle="dispatch", reason=" ").status_code == 400
    assert "dispatch is paused" in person.send("/dashboard/actions/pause", cycle="dispatch", reason="a drill").text
    assert entries(served, "pause")[0]["target"] == {"cycle": "dispatch", "reason": "a drill"}
    again = person.send("/dashboard/actions/pause", cycle="dispatch", reason="another").text
    assert "dispatch was already paused." in again
    assert "because: a drill" in again
    assert "dispatch was resumed" in person.send("/dashboard/actions/resume", cycle="dispatch").text
    assert "was not paused" in person.send("/dashboard/actions/resume", cycle="dispatch").text
    assert "reaper ran." in person.send("/dashboard/actions/run", cycle="reaper").text
    assert entries(served, "run_cycle")[0]["outcome"] == "ok"
    for verb in ("pause", "resume", "run"):
        assert person.get(f"/dashboard/actions/{verb}?cycle=nothing").status_code == 404
    assert person.get("/dashboard/actions/explode").status_code == 404


def test_the_banner_says_why_in_words_and_offers_the_remedy(served: Served, conn: psycopg.Connection[Any]) -> None:
    """Words come first, the service's own as a quotation; an operator finds the button beside them, and with the breaker."""
    conn.execute(
        "insert into relevo.projects (project, filled_at, breaker, breaker_reason, breaker_by, breaker_since, probe_at) "
        "values ('shop', now(), 'open', 'SERVICE_UNAVAILABLE: Down.', 'request', now(), now() + interval '1 hour')"
    )
    phone(conn)
    kill(served, conn, code="SERVICE_UNAVAILABLE", message="Down.")
    actions.pause(served.app.database, "reaper", "a drill")
    person = inside(Person(served))
    page = person.get("/dashboard").text
    verdict = page.split('class="card verdict bad"')[1].split("</section>")[0]
    assert "The push service is unavailable (503), “SERVICE_UNAVAILABLE: Down”" in verdict
    told = " ".join(re.sub(r"<[^>]+>", " ", verdict).split())
    assert re.search(r"Project shop has sent only probes .+ Reason The push service .+ Remedy See Expo", told)
    for button in ("/dashboard/actions/release?project=shop", "/dashboard/actions/resume?cycle=reaper"):
        assert button in verdict
        assert button not in inside(Person(served, "viewer")).get("/dashboard").text
    system = person.get("/dashboard/system").text
    row = system.split("<strong>shop</strong>")[1].split("</tr>")[0].split("</td>")
    assert [place for place, cell in enumerate(row) if "actions/release" in cell] == [2], "it stands with the breaker"
    dead = re.sub(r"<[^>]+>", " ", person.get("/dashboard/dead-letters").text)
    assert "The push service is unavailable (503)." in dead
    assert "“Down.”" in dead
    spanish = person.get("/dashboard", headers={"accept-language": "es"}).text
    assert "El servicio de notificaciones no está disponible (503), «SERVICE_UNAVAILABLE: Down»" in spanish
    assert "Más en el manual (en inglés)" in spanish


def test_what_is_held_is_let_go(served: Served, conn: psycopg.Connection[Any]) -> None:
    """A project's breaker is released, held events are sent or ended, an event is cancelled, rejects are tried again."""
    fill(conn)
    conn.execute(
        "insert into relevo.projects (project, filled_at, breaker, breaker_reason, breaker_by, breaker_since, probe_at) values ('shop', now(), 'open', 'bad credentials', 'request', now(), now() + interval '1 hour')"
    )
    person = inside(Person(served))
    assert "bad credentials" in person.get("/dashboard/actions/release?project=shop").text
    assert (
        "A probe of shop goes out now. Once its push service takes it, the other pushes follow"
        in person.send("/dashboard/actions/release", project="shop").text
    )
    assert person.get("/dashboard/actions/release?project=nobody").status_code == 404
    assert "Try all rejects of folder" in person.get("/dashboard/actions/retry?source=folder").text
    assert "1 reject will be tried again" in person.send("/dashboard/actions/retry", reject="3").text
    assert "70 rejects will be tried again" in person.send("/dashboard/actions/retry", source="folder").text
    assert person.send("/dashboard/actions/retry").status_code == 400
    phone(conn)
    event = served.client("app").post("/v1/events", EVENT).json()["event_id"]
    assert "On its way" in person.get(f"/dashboard/actions/cancel?event={event}").text
    assert (
        f"Event {event} is cancelled" in person.send("/dashboard/actions/cancel", event=str(event), reason="wrong").text
    )
    assert f"Event {event} had already ended" in person.send("/dashboard/actions/cancel", event=str(event)).text
    assert entries(served, "cancel_event")[-1]["target"]["reason"] == "wrong"
    assert entries(served, "cancel_event")[-1]["result"] == {"answer": True, "withdrawn": True}
    assert person.get("/dashboard/actions/cancel?event=99999").status_code == 404
    for wrong in ("x", "0", "-1", "9" * 19, "%D9%A1"):
        assert person.get(f"/dashboard/actions/cancel?event={wrong}").status_code == 400, wrong


def test_what_the_runaway_brake_holds(serve: Callable[..., Served], conn: psycopg.Connection[Any]) -> None:
    """What it holds of a type is sent or ended after a question that tells how much that is."""
    served = serve()
    for key in ("a", "b"):
        served.client("app").post("/v1/events", EVENT | {"key": key})
    conn.execute("update relevo.notification_events set state = 'held'")
    conn.execute(
        "insert into relevo.event_streams (event_type, origin, known_since, held_at, held_reason) values ('order.shipped', 'app', now(), now(), 'too many at once') on conflict do nothing"
    )
    conn.execute(
        "insert into relevo.held_events (event_id, stream_id, held_at, reason) select e.id, s.id, now(), 'x' from relevo.notification_events e, relevo.event_streams s"
    )
    person = inside(Person(served))
    page = person.get("/dashboard/actions/send-held?type=order.shipped").text
    assert "too many at once" in page
    assert "Send 2 events" in page
    assert 'class="grave">End 2 events' in person.get("/dashboard/actions/drop-held?type=order.shipped").text
    assert (
        "2 events of order.shipped were ended" in person.send("/dashboard/actions/drop-held", type="order.shipped").text
    )
    assert entries(served, "release_events")[0]["target"]["drop"] is True
    assert "<button" not in person.get("/dashboard/actions/send-held?type=order.shipped").text.split("question")[1]


def test_a_viewer_does_nothing(served: Served, conn: psycopg.Connection[Any]) -> None:
    """A viewer sees every list without a button, and is refused when he posts all the same."""
    phone(conn)
    fill(conn)
    kill(served, conn)
    viewer, operator = inside(Person(served, "viewer")), inside(Person(served))
    for path in ("/dashboard/sources", "/dashboard/dead-letters"):
        assert "/dashboard/actions/" in operator.get(path).text
        assert "/dashboard/actions/" not in viewer.get(path).text
    assert viewer.get("/dashboard/actions/pause?cycle=dispatch").status_code == 403
    assert viewer.send("/dashboard/actions/pause", cycle="dispatch", reason="x", role="operator").status_code == 403
    assert entries(served, "pause")[0]["actor"].startswith("somebody")


def test_an_audience_is_previewed(served: Served, conn: psycopg.Connection[Any]) -> None:
    """A viewer sees how many phones an audience has and some of them; what is wrong is told beside the form; nothing is enqueued."""
    first = phone(conn)
    phone(conn)
    viewer = inside(Person(served, "viewer"))
    page = viewer.get("/dashboard/compose").text
    assert "Preview" in page
    assert "Test push" not in page
    everyone = viewer.get("/dashboard/compose?audience=everyone").text
    assert "2 phones" in everyone
    assert str(first) in everyone
    assert "1 phone<" in viewer.get(f"/dashboard/compose?audience=installations&whom={first}%0A{UUID(int=1)}").text
    assert "2 phones" in viewer.get("/dashboard/compose?audience=matching&region=RM&monto=7.5").text
    verbs.set_preference(conn, first, "default", values.Preference(topics=("y",)))
    assert "1 phone<" in viewer.get("/dashboard/compose?audience=matching&topics=x,y&region=RM&monto=7.5").text
    for wrong in (
        "audience=nobody",
        "audience=installations&whom=x",
        "audience=matching&monto=much",
        "audience=owners",
    ):
        page = viewer.get(f"/dashboard/compose?{wrong}")
        assert (page.status_code, 'role="alert"' in page.text) == (200, wrong != "audience=owners"), wrong
    assert conn.execute("select count(*) from relevo.notification_events").fetchall() == [(0,)]


def test_a_preview_tells_who_is_left_out(served: Served, conn: psycopg.Connection[Any]) -> None:
    """Of an audience those who get nothing are counted by the reason, for everyone as for named phones, owners and preferences."""
    good, off, lost, quiet = (register(conn, f"{name}") for name in ("ana", "bea", "carla", "dora"))
    for change, which in (
        ("active = false", off),
        ("token = null, invalidated_at = now(), invalid_reason = 'DeviceNotRegistered'", lost),
        ("opt_outs = '{ads}'", quiet),
    ):
        conn.execute(
            f"update relevo.device_installations set {change}, owner = 'ana' where installation_id = %s", [which]
        )  # type: ignore[arg-type]
    viewer = inside(Person(served, "viewer"))
    left = (
        "Left out",
        "1 phone: it was unregistered, for example by a log-out",
        "1 phone: The app was removed from this phone, or may show nothing any more",
        "1 phone: opted out of the category ads",
    )
    named = "%0A".join(map(str, (good, off, lost, quiet, UUID(int=1))))
    for query in ("audience=everyone", "audience=owners&whom=ana", f"audience=installations&whom={named}"):
        page = viewer.get(f"/dashboard/compose?{query}&category=ads").text
        assert [words for words in left if words not in page] == [], query
        told = re.findall(r"<li>(1 phone: [^<]+)</li>", page)
        assert (len(told) >= len(left) - 1, [each for each in told if each.endswith(".")]) == (True, []), query
    assert "1 phone: not registered" in page
    assert "Unknown owners: ghost<" in viewer.get("/dashboard/compose?audience=owners&whom=ana%0Aghost").text
    matching = viewer.get("/dashboard/compose?audience=matching&topics=x").text
    assert "Left out (besides phones whose preferences do not match)" in matching
    assert [words for words in left[:3] if words not in matching] == []
    assert "opted out" not in matching
    assert "Left out" not in viewer.get(f"/dashboard/compose?audience=installations&whom={good}").text


def test_a_form_keeps_what_was_typed(served: Served, conn: psycopg.Connection[Any]) -> None:
    """Whatever is wrong with a test push or an audience, it is said beside the form, which holds what was typed; going back keeps it, too."""
    good = phone(conn)
    person = inside(Person(served))
    typed = {"phones": str(good), "title": "Hello <b>", "body": "there", "data": '{"a": '}
    for wrong in ({}, {"phones": "x"}, {"data": "[]"}, {"phones": "", "owner": "nobody"}, {"title": "y" * 501}):
        page = person.get("/dashboard/actions/test", params=typed | wrong)
        assert (page.status_code in (400, 404), 'role="alert"' in page.text) == (True, True), wrong
        text = unescape(page.text)
        assert [each for each in (typed | wrong).values() if each[:500] not in text] == [], wrong
    question = person.get("/dashboard/actions/test", params=typed | {"data": '{"a": 1}'}).text
    back = unescape(re.findall(r'href="(/dashboard/compose[?][^"]+)"', question)[0])
    again = unescape(person.get(back).text)
    assert [each for each in (str(good), "Hello <b>", "there", '{"a": 1}') if each not in again] == []
    lost = unescape(person.get("/dashboard/compose?audience=matching&monto=much&region=Maule").text)
    assert [each for each in ('value="much"', 'value="Maule"') if each not in lost] == []


def test_a_phone_leads_to_a_test_push(served: Served, conn: psycopg.Connection[Any]) -> None:
    """From a phone's and an owner's page an operator comes to the form, filled in; a viewer does not."""
    one = register(conn, "ana")
    conn.execute("update relevo.device_installations set owner = 'a/b c'")
    operator, viewer = inside(Person(served)), inside(Person(served, "viewer"))
    for path, filled in (
        (f"/dashboard/installations/{one}", f"{one}</textarea>"),
        ("/dashboard/owners/a%2Fb%20c", 'value="a/b c"'),
    ):
        [there] = re.findall(r'href="(/dashboard/compose[?][^"]+)"', operator.get(path).text)
        assert filled in operator.get(unescape(there)).text
        assert "/dashboard/compose?" not in viewer.get(path).text


def test_a_test_push_tells_what_became_of_it(
    serve: Callable[..., Served], conn: psycopg.Connection[Any], sandbox: Sandbox
) -> None:
    """It asks first, of each phone whether it would get it; then its page follows it: sent, taken by how many, or why by none."""
    served = serve(expo_base_url=sandbox.url, outbox_max_attempts=1)
    good, gone = (register(conn, name) for name in ("ana", "bea!DeviceNotRegistered"))
    silent = register(conn, "carla")
    conn.execute("update relevo.device_installations set active = false where installation_id = %s", [silent])
    person = inside(Person(served))
    phones = f"{good}, {gone}\n{silent}"
    asked = {"phones": phones, "title": "Hello <b>", "body": "there", "data": '{"a": 1}'}
    question = person.get("/dashboard/actions/test", params=asked).text
    assert "Send this test push to 2 of 3 phones?" in question
    assert "1 phone: Pushes may not go to this phone: it was unregistered, for example by a log-out." in question
    assert "Pushes may not go to this phone: it was unregistered, for example by a log-out." in question
    key = re.findall(r'name="key" value="([^"]+)"', question)[0]
    answer = person.send("/dashboard/actions/test", key=key, **asked)
    assert answer.status_code == 303
    follow = answer.headers["location"]
    assert person.send("/dashboard/actions/test", key=key, **asked).headers["location"] == follow
    assert "On its way to 2 of 3 phones" in person.get(follow).text
    fan_out(served)
    run(served, "dispatch")
    page = person.get(follow).text
    assert "Sent to 1 of 3 phones" in page
    assert "data-live" in page
    conn.execute("update relevo.awaited_receipts set look_at = now() - interval '1 hour'")
    run(served, "receipt")
    page = person.get(follow).text
    assert "Accepted for 1 of 3 phones" in page
    assert "The app is gone from this phone" in page
    assert "data-live" not in page
    assert entries(served, "send_test")[-1]["target"] == {"phones": 3}
    assert person.get("/dashboard/compose/999").status_code == 404


def test_a_test_push_that_cannot_be(served: Served, conn: psycopg.Connection[Any]) -> None:
    """No phone, too many, what is no id, and data that is no object are told; a viewer may not."""
    good = phone(conn)
    person = inside(Person(served))
    for wrong, status in (
        ({"phones": ""}, 404),
        ({"phones": "x"}, 400),
        ({"phones": "\n".join(str(UUID(int=each)) for each in range(21))}, 400),
        ({"phones": str(good), "data": "[1]"}, 400),
        ({"phones": str(good), "data": "["}, 400),
        ({"owner": "nobody"}, 404),
    ):
        assert person.get("/dashboard/actions/test", params=wrong).status_code == status, wrong
    assert person.send("/dashboard/actions/test", phones=str(good)).status_code == 400
    viewer = inside(Person(served, "viewer"))
    assert viewer.send("/dashboard/actions/test", phones=str(good), key=str(UUID(int=7))).status_code == 403
    assert conn.execute("select count(*) from relevo.notification_events").fetchall() == [(0,)]


ODD = (
    "",
    "%00",
    "%ED%A0%80",
    "x" * 5_000,
    "-1",
    "9" * 30,
    "%27%3B--",
    "%F0%9F%8E%89",
    "NaN",
    "1e999",
    "%2E%2E",
    "[]",
    "%0A",
)


def test_odd_addresses_are_told_and_nothing_breaks(serve: Callable[..., Served], conn: psycopg.Connection[Any]) -> None:
    """Whatever stands in an address or a form, the answer is a page, never a failure; and nothing is done."""
    good = phone(conn)
    person = inside(Person(serve(http_rate_per_second=0)))  # a fast machine asks faster than anybody may
    fields = {
        "/dashboard/runs": ("cycle", "ended", "worker", "hours", "before"),
        "/dashboard/audit": ("actor", "action", "ended", "hours", "before"),
        "/dashboard/sources": ("source", "before"),
        "/dashboard/archive": ("before",),
        "/dashboard/compose": ("audience", "audience=owners&whom", "audience=matching&monto", "audience=matching&text"),
        "/dashboard/actions/redrive": ("code", "project", "type", "event", "delivery"),
        "/dashboard/actions/test": ("phones", "owner", f"phones={good}&title", f"phones={good}&data"),
        "/dashboard/actions/cancel": ("event",),
        "/dashboard/actions/retry": ("source", "reject"),
        "/dashboard/actions/send-held": ("type", "type=x&origin"),
    }
    found = {
        (path, name, odd): person.get(f"{path}?{name}={odd}").status_code
        for path, names in fields.items()
        for name in names
        for odd in ODD
    }
    assert {key: status for key, status in found.items() if status not in (200, 400, 404)} == {}
    for verb in ("pause", "resume", "run", "release", "send-held", "drop-held", "cancel", "retry", "redrive", "test"):
        for odd in ("", "\x00", "x" * 5_000):
            given = dict.fromkeys(
                ("cycle", "project", "type", "event", "reject", "source", "phones", "key", "code"), odd
            )
            assert person.send(f"/dashboard/actions/{verb}", **given).status_code in (400, 404), (verb, odd[:5])
