"""`relevo apply`: a file is planned, applied in one transaction, applied again without effect, and refused by line and key."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.relevo_command import Command

PAGE = Path(__file__).resolve().parents[2] / "server" / "docs" / "configuration-as-code.md"
STATE = """
select to_jsonb(t) - 'updated_at' from relevo.event_types t union all select to_jsonb(w) - 'created_at' from relevo.wordings w
union all select to_jsonb(c) - 'updated_at' from relevo.categories c union all select to_jsonb(l) from relevo.project_locales l
union all select to_jsonb(d) from relevo.quiet_defaults d union all select to_jsonb(c) - '{id,updated_at}'::text[] from relevo.caps c
union all select to_jsonb(s) from relevo.news_subscriptions s union all select to_jsonb(a) from relevo.api_tokens a
union all select to_jsonb(c) from relevo.quiet_changes c
"""
TWO_PROJECTS = """
projects:
  shop: &same
    language: es
    quiet_hours: {windows: ["22:00-07:00"], zone: America/Santiago}
    caps: [{per: day, most: 5}]
    news: {billing: {}}
    tokens: {billing: app}
  bank: *same
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file that the docs show."""
    found = re.search(r"^```yaml\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found
    return written(tmp_path, found[1])


def written(folder: Path, text: str) -> Path:
    """Write a file to apply."""
    made = folder / "relevo.yaml"
    made.write_text(text, encoding="utf-8")
    return made


def state(conn: psycopg.Connection[Any]) -> list[Any]:
    """Return everything that a file may set."""
    return sorted((row[0] for row in conn.execute(STATE).fetchall()), key=str)


def test_the_page_keeps_its_word(conn: psycopg.Connection[Any], command: Command, file: Path, tmp_path: Path) -> None:
    """The page's file is planned without effect, applied with its new tokens' secrets in a file, and then changes nothing."""
    before = state(conn)
    planned = command("apply", file, "--plan")
    assert (planned.code, state(conn)) == (3, before)
    assert "+ event type order.shipped" in planned.out
    assert "    texts.es.title: " in planned.out
    assert "would change; nothing was changed: 11 new." in planned.out
    refused = command("apply", file)
    assert refused.code == 2
    assert "--tokens-to FILE" in refused.err
    assert state(conn) == before
    secrets = tmp_path / "tokens.tsv"
    done = command("apply", file, "--tokens-to", secrets)
    assert (done.code, done.out) == (0, planned.out.replace("would change; nothing was changed", "changed"))
    assert secrets.stat().st_mode & 0o777 == 0o600
    rows = [line.split("\t") for line in secrets.read_text(encoding="utf-8").splitlines()]
    assert [row[:2] for row in rows] == [["", "grafana"], ["default", "billing"]]
    assert not any(row[2] in done.out for row in rows)
    after = state(conn)
    for again in (("--plan",), ()):
        told = command("apply", file, *again)
        assert (told.code, told.out) == (0, f"No changes: the database is as {file} says.\n")
    assert state(conn) == after
    record = conn.execute("select outcome, target, result from relevo.audit_log order by id").fetchall()
    assert [row[0] for row in record] == ["failed", "ok", "ok"]
    assert record[1][1]["event_type"] == 2
    assert "event_type offer" in record[1][2]["changed"]


def test_what_is_exported_sets_the_same(
    conn: psycopg.Connection[Any], command: Command, file: Path, tmp_path: Path
) -> None:
    """The exported file changes nothing where it came from, and sets all of it in a database that has nothing."""
    command("apply", file, "--tokens-to", tmp_path / "made")
    command("category", "set", "1e3", "--name", "en=null", "--name", "es=0o7")
    exported = written(tmp_path, command("apply", "--export").out)
    assert "owns" not in exported.read_text(encoding="utf-8")
    assert command("apply", exported).out.startswith("No changes")
    before = [each for each in state(conn) if "secret_hash" not in each and "head" not in each]
    conn.execute("delete from relevo.event_types; delete from relevo.categories; delete from relevo.caps")
    conn.execute(
        "delete from relevo.quiet_defaults; delete from relevo.project_locales; delete from relevo.quiet_changes"
    )
    assert command("apply", exported).code == 0
    after = [each for each in state(conn) if "secret_hash" not in each and "head" not in each]
    assert [{**each, "changed_at": 0, "look_at": 0} for each in after] == [
        {**each, "changed_at": 0, "look_at": 0} for each in before
    ]
    for words in (("apply",), ("apply", file, "--export")):
        assert command(*words).code == 2


def test_what_is_left_out(conn: psycopg.Connection[Any], command: Command, tmp_path: Path) -> None:
    """A type in the file is as the file says in everything; what is not in it stays unless the file owns it."""
    command("event-type", "offer", "--ttl-s", "60", "--urgent")
    command("event-type", "other", "--ttl-s", "60")
    command("cap", "set", "day", "3")
    file = written(tmp_path, "event_types: {offer: {ttl_s: 90}}")
    told = command("apply", file, "--json").lines
    assert [(each["name"], each["before"], each["after"]) for each in told] == [
        ("offer", {"lane": "urgent", "ttl_s": 60}, {"ttl_s": 90})
    ]
    written(tmp_path, "owns: [event_types, caps]\nevent_types: {offer: {ttl_s: 90}}")
    told = command("apply", file, "--json").lines
    assert [(each["kind"], each["name"], each["after"]) for each in told] == [
        ("event_type", "other", None),
        ("cap", "per day", None),
    ]
    written(tmp_path, "event_types: {offer: null}")
    assert command("apply", file).out.startswith("- event type offer\n1 thing changed: 1 removed.")


def test_two_projects_with_the_same_names(conn: psycopg.Connection[Any], command: Command, tmp_path: Path) -> None:
    """What two projects name alike is each one's own, and a change of one leaves the other's alone."""
    command("owner", "names", "separate")
    file = written(tmp_path, TWO_PROJECTS)
    assert command("apply", file, "--tokens-to", tmp_path / "made").code == 0
    assert command("apply", file, "--plan").code == 0
    roles = dict(conn.execute("select project, role from relevo.api_tokens where name = 'billing'").fetchall())
    assert roles == {"shop": "app", "bank": "app"}
    assert conn.execute("select count(*), count(distinct project) from relevo.news_subscriptions").fetchone() == (2, 2)
    bank = [each for each in state(conn) if each.get("project") == "bank"]
    written(
        tmp_path,
        "owns: [caps]\nprojects: {shop: {tokens: {billing: viewer}, language: null, caps: [{per: day, most: 9}]}, bank: {caps: [{per: day, most: 5}]}}",
    )
    told = command("apply", file, "--json").lines
    assert [(each["kind"], each["project"]) for each in told] == [
        ("language", "shop"),
        ("cap", "shop"),
        ("token", "shop"),
    ]
    assert [each for each in state(conn) if each.get("project") == "bank"] == bank
    command("news", "subscribe", "audit", "--project", "bank", "--kind", "token.disabled")
    refused = command("apply", written(tmp_path, "news: {audit: {}}"))
    assert refused.code == 2
    assert "news.audit: the subscription audit is one of project bank" in refused.err


def test_unread_news_are_not_forgotten(conn: psycopg.Connection[Any], command: Command, tmp_path: Path) -> None:
    """A file that owns subscriptions removes one that it does not name, but not while news wait unread for it."""
    command("news", "subscribe", "billing")
    conn.execute("update relevo.news_subscriptions set head = 2")
    file = written(tmp_path, "owns: [news]")
    refused = command("apply", file)
    assert (refused.code, "2 news wait" in refused.err) == (2, True)
    conn.execute("update relevo.news_cursors set position = 2")
    assert command("apply", file).out.startswith("- news billing\n")


def test_a_token_keeps_its_secret(conn: psycopg.Connection[Any], command: Command, tmp_path: Path) -> None:
    """A token that is there gets another role and keeps its secret; one that is not to be is revoked."""
    command("token", "make", "grafana", "--role", "viewer")
    before = conn.execute("select id, secret_hash from relevo.api_tokens").fetchall()
    file = written(tmp_path, "tokens: {grafana: app}")
    assert command("apply", file).out.splitlines()[:2] == ["~ token grafana", "    role: viewer → app"]
    assert conn.execute("select id, secret_hash from relevo.api_tokens where role = 'app'").fetchall() == before
    written(tmp_path, "tokens: {grafana: null}")
    assert command("apply", file).out.startswith("- token grafana\n")
    assert conn.execute("select revoked_at is not null from relevo.api_tokens").fetchall() == [(True,)]


REFUSED = [
    (
        "event_types:\n  offer:\n    lan: urgent",
        "line 3: event_types.offer.lan is an unknown key",
        "Did you mean `lane`?",
    ),
    ("event_types:\n  offer: {lane: fast}", "line 2: event_types.offer: lane must be urgent", ""),
    ("event_types:\n  offer: {ttl_s: soon}", "line 2: event_types.offer: ttl_s must be", ""),
    ("categories:\n  offers: {texts: {}}", "line 2: categories.offers must have a rule", ""),
    ("projects:\n  shop:\n    quiet_hours: {windows: [22:00-07:00]}", "zone must be given", ""),
    (
        "projects:\n  shop:\n    caps: [{per: day, most: 1, zest: 2}]",
        "caps[0].zest is an unknown key",
        "Keys here: category, most, over, per.",
    ),
    ("projects:\n  shop:\n    caps: [{per: day}]", "line 3: projects.shop.caps[0] must have most", ""),
    ("projects:\n  shop:\n    caps: [{per: day, most: 1}, {per: day, most: 2}]", "is there already, on line 3", ""),
    ("tokens:\n  grafana: {secret: hunter2}", "line 2: tokens.grafana must be the name of a role", "never stands"),
    ("owns: [people]", "line 1: owns[0] cannot be owned", "caps"),
    ("a: 1\na: 2", "line 2: a is given twice", ""),
    ("a: [1\nb: 2", "is not YAML", ""),
    ("a: " + "9" * 400, "line 1: a is too large a number: 999", ""),
    ("a: " + "9" * 5000, "line 1: a is too large a number: 999", ""),
    ("event_types: !!python/object:os.system {}", "has the tag !!python/object:os.system", ""),
    ("- a", "must be a mapping", ""),
    ("a: &a [*a]", "levels", ""),
    (
        "a: &a [1,1,1,1,1,1,1,1]\nb: &b [" + "*a," * 90 + "1]\nc: &c [" + "*b," * 90 + "1]\nd: [*c,*c]",
        "more than 50,000 values",
        "",
    ),
    ("[" * 5000, "levels", ""),
    ("x" * 1_000_001, "larger than", ""),
    ('event_types: {"a\\0b": {}}', "cannot store", ""),
    ("event_types: {relevo.news: {ttl_s: 60}}", "must not begin with relevo.", ""),
]


@pytest.mark.parametrize(("text", "complaint", "hint"), REFUSED)
def test_what_is_wrong_is_named(
    conn: psycopg.Connection[Any], command: Command, tmp_path: Path, text: str, complaint: str, hint: str
) -> None:
    """A wrong file is refused with exit code 2 and a sentence that names file, line and key; nothing is changed."""
    before = state(conn)
    for more in ((), ("--plan",)):
        refused = command("apply", written(tmp_path, text), *more)
        assert refused.code == 2, refused
        assert complaint in refused.err
        assert hint in refused.err
        assert "relevo.yaml" in refused.err
        assert "hunter2" not in refused.err
    assert state(conn) == before


def test_all_or_nothing(conn: psycopg.Connection[Any], command: Command, tmp_path: Path) -> None:
    """Where the last thing of a file is refused, nothing of it is there, nor the file with the secrets of its tokens."""
    before = state(conn)
    file = written(
        tmp_path, "event_types: {offer: {ttl_s: 60}}\ntokens: {a: app, b: app}\nprojects: {shop: {tokens: {c: app}}}"
    )
    conn.execute("delete from relevo.owner_sharing")
    conn.execute("insert into relevo.owner_sharing (shared) values (true)")
    conn.execute(
        "insert into relevo.api_tokens (id, name, role, project, secret_hash) values ('0123456789ab', 'x', 'app', 'bank', %s)",
        [b"0" * 32],
    )
    refused = command("apply", file, "--tokens-to", tmp_path / "made")
    assert refused.code == 2, refused
    assert "projects.shop.tokens.c: Nobody has decided whether" in refused.err
    assert not (tmp_path / "made").exists()
    assert len(state(conn)) == len(before) + 1


CUT_OFF_AT_COMMIT = """
create function public.cut_off() returns trigger language plpgsql as $$
begin
  perform pg_terminate_backend(pg_backend_pid());
  return null;
end $$;
create constraint trigger cut_off after insert on relevo.api_tokens deferrable initially deferred
  for each row execute function public.cut_off();
"""


def test_a_commit_without_an_answer_keeps_the_secrets(
    conn: psycopg.Connection[Any], command: Command, tmp_path: Path
) -> None:
    """Where the connection ends during the commit, the tokens may be there: their secrets stay in the file, and the command fails."""
    conn.execute(CUT_OFF_AT_COMMIT)
    try:
        done = command("apply", written(tmp_path, "tokens: {a: app}"), "--tokens-to", tmp_path / "made")
    finally:
        conn.execute("drop trigger cut_off on relevo.api_tokens")
        conn.execute("drop function public.cut_off")
    assert done.code == 1
    assert "relevo_" in (tmp_path / "made").read_text()
    assert "relevo_" not in done.out + done.err
