"""`relevo import-phones`: phones of a file, of other senders' exports, what is refused and why, and an import that is killed."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import relevo
from relevo import Installation
from relevo.operators import phone_files
from support.processes import RELEVO, eventually
from support.push_tokens import subscription
from support.relevo_command import Command

HEX = "00aa" * 16
PHONES = "select provider, part, token, project, platform, owner, locale from relevo.device_installations order by owner, token"


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a file of phones, as its name says."""

    def make(name: str, *rows: dict[str, Any]) -> Path:
        file = tmp_path / name
        with file.open("w", encoding="utf-8", newline="") as opened:
            if name.endswith(".jsonl"):
                opened.writelines(f"{json.dumps(row)}\n" for row in rows)
            else:
                writer = csv.DictWriter(opened, list(dict.fromkeys(name for row in rows for name in row)))
                writer.writeheader()
                writer.writerows(rows)
        return file

    return make


def refused(file: Path) -> list[list[str]]:
    """Read the list of refused lines."""
    with file.with_name(f"{file.name}.refused.csv").open(encoding="utf-8", newline="") as opened:
        return list(csv.reader(opened))


@pytest.mark.parametrize("name", ["phones.csv", "phones.jsonl"])
def test_columns_of_relevo(conn, command: Command, write: Callable[..., Path], name: str) -> None:
    """Each phone is registered with what its line says, and with what is said for all; a second import changes nothing."""
    file = write(
        name,
        {"token": "ExponentPushToken[a]", "owner": "ana", "locale": "es"},
        {"token": "abc", "provider": "fcm", "platform": "android", "owner": 'ñandú, "el" 1'},
        {"token": HEX.upper(), "provider": "apns", "environment": "sandbox", "project": "other"},
        {"token": subscription(), "provider": "webpush"},
    )
    for _ in range(2):
        said = command("import-phones", file, "--project", "shop")
        assert (said.code, said.out.strip()) == (0, "4 phones registered, 0 lines refused.")
        assert {(*row[:2], *row[3:]) for row in conn.execute(PHONES)} == {
            ("expo", "", "shop", "unknown", "ana", "es"),
            ("fcm", "android", "shop", "android", 'ñandú, "el" 1', None),
            ("apns", "sandbox", "other", "ios", None, None),
            ("webpush", "push.example.com", "shop", "web", None, None),
        }
    assert sorted(path.name for path in file.parent.iterdir()) == [name]
    done = conn.execute("select action, outcome from relevo.audit_log").fetchall()
    assert done == [("import_phones", "ok")] * 2


def test_what_is_refused_is_listed(conn, command: Command, write: Callable[..., Path]) -> None:
    """By line and reason, without its token; the others are registered, and the command fails."""
    file = write(
        "phones.csv",
        {"token": "ExponentPushToken[a]", "platform": "ios"},
        {"token": "hunter2", "platform": "ios"},
        {"token": "", "platform": "ios"},
        {"token": "ExponentPushToken[b]", "platform": "fridge"},
        {"token": "ExponentPushToken[c]", "platform": "ios"},
    )
    said = command("import-phones", file, "--json")
    assert (said.code, said.lines) == (
        1,
        [
            {
                "registered": 2,
                "refused": 3,
                "lines": 6,
                "dry_run": False,
                "denied": 0,
                "reasons": dict.fromkeys((why for _, why in refused(file)[1:]), 1),
                "dropped": [],
                "refused_file": f"{file}.refused.csv",
            }
        ],
    )
    assert refused(file) == [
        ["line", "reason"],
        ["3", "token must look like ExponentPushToken[...], ExpoPushToken[...] or a UUID."],
        ["4", "token must be given."],
        ["5", "platform must be ios, android, web or unknown."],
    ]
    assert [row[2] for row in conn.execute(PHONES)] == ["ExponentPushToken[a]", "ExponentPushToken[c]"]


def test_a_dry_run_writes_nothing(conn, command: Command, write: Callable[..., Path]) -> None:
    """It tells what would be taken and what not, and why, by reason."""
    bad = [{"token": token, "provider": "expo"} for token in "bc"]
    file = write("phones.jsonl", {"token": "ExponentPushToken[a]"}, *bad, {"provider": "expo"})
    said = command("import-phones", file, "--dry-run")
    assert (said.code, said.out.splitlines()) == (
        1,
        [
            "1 phone would be registered, 3 lines would be refused.",
            "  2 lines: token must look like ExponentPushToken[...], ExpoPushToken[...] or a UUID.",
            "  1 line: token must be given.",
        ],
    )
    assert conn.execute(PHONES).fetchall() == []
    assert [path.name for path in file.parent.iterdir()] == ["phones.jsonl"]


def test_lines_that_are_nothing(conn, command: Command, tmp_path: Path) -> None:
    """What is no JSON object, or far too long, is refused by its line, and the rest is read."""
    file = tmp_path / "phones.jsonl"
    file.write_text(
        f'{{"token": "ExponentPushToken[a]"}}\n[1]\n\n{{"x": "{"y" * 200_000}"}}\n{{\n{{"token": "ExponentPushToken[b]"}}'
    )
    assert command("import-phones", file).code == 1
    assert refused(file)[1:] == [[line, "it is no JSON object"] for line in ("2", "4", "5")]
    assert [row[2] for row in conn.execute(PHONES)] == ["ExponentPushToken[a]", "ExponentPushToken[b]"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'"ExponentPushToken[b],ana', "it is no CSV: a quote is not closed"),
        (b"ExponentPushToken[b],Jos\xe9", "it is not written in UTF-8"),
        (b'"' + b"x" * 99_000, "it is no CSV: a quote is not closed"),
    ],
)
def test_a_line_that_is_no_csv_is_refused_alone(conn, command: Command, tmp_path: Path, line: bytes, why: str) -> None:
    """A quote that is not closed, or bytes that are no text, cost no phone behind them, quoted or not."""
    rest = b"".join(b'"ExponentPushToken[c%d]","eva"\nExponentPushToken[d%d],eva\n' % (n, n) for n in range(50))
    file = tmp_path / "phones.csv"
    file.write_bytes(b"token,owner\nExponentPushToken[a],ana\n" + line + b"\n" + rest)
    assert command("import-phones", file).code == 1
    assert refused(file)[1:] == [["3", why]]
    assert len(conn.execute(PHONES).fetchall()) == 101


def test_a_value_of_several_lines_is_read(conn, command: Command, tmp_path: Path) -> None:
    """In quotes a value may hold an end of line, and a quote twice; the number of a row is that of its last line.

    However many such rows there are, each is read."""
    pretty = json.dumps(json.loads(subscription()), indent=1).replace('"', '""')
    file = tmp_path / "phones.csv"
    file.write_text(f'token,provider\n"{pretty}",webpush\n' + '"no\nphone",fcm\n' * 30)
    assert command("import-phones", file).code == 1
    first = 3 + pretty.count("\n") + 1
    assert [int(line) for line, _ in refused(file)[1:]] == [first + 2 * n for n in range(30)]
    assert [row[0] for row in conn.execute(PHONES)] == ["webpush"]


def test_a_phone_that_the_database_refuses_is_refused_alone(conn, command: Command, write: Callable[..., Path]) -> None:
    """What a trigger of the app's own refuses is one line's trouble: all others are registered."""
    conn.execute(
        "create function public.refuse_it() returns trigger language plpgsql as "
        "$$ begin if new.owner = 'eva' then raise 'no phones of hers'; end if; return new; end $$"
    )
    conn.execute(
        "create trigger refuse_it before insert on relevo.device_installations "
        "for each row execute function public.refuse_it()"
    )
    owners = ["ana", "eva", *(f"x{n}" for n in range(20))]
    file = write("phones.csv", *({"token": f"ExponentPushToken[{owner}]", "owner": owner} for owner in owners))
    assert command("import-phones", file).code == 1
    [[line, why]] = refused(file)[1:]
    assert (line, "no phones of hers" in why) == ("3", True)
    assert len(conn.execute(PHONES).fetchall()) == 21


OTHERS: list[tuple[str, dict[str, Any], tuple[str | None, ...] | str]] = [
    ("gorush", {"token": HEX, "platform": 1}, ("apns", "production", HEX, "ios", None)),
    ("gorush", {"token": HEX, "platform": 1, "development": "true"}, ("apns", "sandbox", HEX, "ios", None)),
    ("gorush", {"token": "abc", "platform": "2"}, ("fcm", "android", "abc", "android", None)),
    ("gorush", {"token": "abc", "platform": 3}, "platform must be one of 1, ios, 2, android."),
    ("rpush", {"type": "Rpush::Client::ActiveRecord::Apnsp8::Notification", "device_token": HEX}, ("apns", "production", HEX, "ios", None)),
    ("rpush", {"device_token": HEX, "environment": "sandbox"}, ("apns", "sandbox", HEX, "ios", None)),
    ("rpush", {"type": "Rpush::Client::ActiveRecord::Fcm::Notification", "device_token": "abc"}, ("fcm", "android", "abc", "android", None)),
    ("rpush", {"type": "Rpush::Client::ActiveRecord::Gcm::Notification", "registration_ids": '["abc"]'}, ("fcm", "android", "abc", "android", None)),
    ("rpush", {"type": "Rpush::Client::ActiveRecord::Gcm::Notification", "registration_ids": '["a", "b"]'}, "registration_ids must hold one token."),
    ("rpush", {"type": "Rpush::Client::ActiveRecord::Gcm::Notification", "registration_ids": "[" * 50_000}, "registration_ids must hold one token."),
    ("rpush", {"type": "Rpush::Client::ActiveRecord::Adm::Notification"}, "type must be a class of Rpush for APNs, FCM or GCM."),
    ("onesignal", {"identifier": HEX, "device_type": 0, "external_user_id": "7", "language": "es", "invalid_identifier": "f"}, ("apns", "production", HEX, "ios", "7")),
    ("onesignal", {"identifier": HEX, "device_type": 0, "test_type": 1}, ("apns", "sandbox", HEX, "ios", None)),
    ("onesignal", {"identifier": "abc", "device_type": 1, "notification_types": "1"}, ("fcm", "android", "abc", "android", None)),
    ("onesignal", {"identifier": "abc", "device_type": 1, "invalid_identifier": "t"}, "invalid_identifier says that OneSignal has its token for gone."),
    ("onesignal", {"identifier": "def", "device_type": 1, "notification_types": "-2"}, ("fcm", "android", "def", "android", None)),
    ("onesignal", {"identifier": "https://a.b/c", "device_type": 5}, "device_type is a browser's, whose subscription is bound to OneSignal's key."),
    ("onesignal", {"identifier": "a@b.c", "device_type": 11}, "device_type must be one of 0, 1."),
]  # fmt: skip
"""By whose export it is: a line of it, and the phone it becomes, or why it becomes none."""


def test_files_of_others(conn, command: Command, write: Callable[..., Path]) -> None:
    """A phone of Gorush, Rpush or OneSignal becomes one of FCM or APNs; what cannot be one is refused, and says why."""
    for kind in ("gorush", "rpush", "onesignal"):
        conn.execute("delete from relevo.device_installations")
        lines = [(row, kept) for of, row, kept in OTHERS if of == kind]
        file = write("phones.csv", *(row for row, _ in lines))
        assert command("import-phones", file, "--from", kind).code == 1
        wrong = [[str(number), kept] for number, (_, kept) in enumerate(lines, 2) if isinstance(kept, str)]
        assert refused(file)[1:] == wrong
        found = {(row[0], row[1], row[2], row[4], row[5]) for row in conn.execute(PHONES)}
        assert found == {kept for _, kept in lines if not isinstance(kept, str)}


def test_what_onesignal_knows_of_people(conn, command: Command, write: Callable[..., Path]) -> None:
    """Who unsubscribed is registered and gets nothing; time zones are taken; tags become attributes, and those
    that are none are named as dropped, as is a time zone that is unknown and an offset that is no whole hours."""
    zones = {
        "a": {"timezone_id": "America/Santiago", "timezone": "-10800"},
        "b": {"timezone": "-10800"},
        "c": {"timezone": "Asia/Tokyo"},
        "d": {"timezone": "19800"},
        "e": {"timezone_id": "Mars/Base"},
        "f": {"timezone": "0"},
    }
    rows = [
        {"identifier": name, "device_type": 1, "tags": '{"vip": "yes", "my tag": "1"}', **zone}
        for name, zone in zones.items()
    ]
    off = {"device_type": 1, "invalid_identifier": "t"}  # OneSignal says so of who unsubscribed, too
    gone = [{"identifier": f"off{code}", "notification_types": code, **off} for code in (-2, -31)]
    gone += [{"identifier": "offered", "device_type": 1, "notification_types": 0}]
    file = write("users.jsonl", *rows, *gone)
    said = command("import-phones", file, "--from", "onesignal", "--json")
    [told] = said.lines
    assert (said.code, told["registered"], told["denied"]) == (0, 9, 3)
    assert told["dropped"] == ["tags my tag", "timezone 19800", "timezone_id Mars/Base"]
    found = conn.execute(
        "select token, timezone, permission from relevo.device_installations order by token"
    ).fetchall()
    assert [row[1] for row in found[:6]] == ["America/Santiago", "Etc/GMT+3", "Asia/Tokyo", None, None, "UTC"]
    assert [row[2] for row in found] == ["granted"] * 6 + ["denied"] * 3
    known = conn.execute("select distinct attributes from relevo.device_installations where permission = 'granted'")
    assert known.fetchall() == [({"vip": "yes"},)]
    again = command("import-phones", file, "--from", "onesignal")
    assert "3 phones of these get no pushes: their owners unsubscribed." in again.out
    assert (
        "Columns left out, because Relevo has no field for them: tags my tag, timezone 19800, timezone_id Mars/Base."
        in again.out
    )


def test_columns_of_any_name(conn, command: Command, write: Callable[..., Path]) -> None:
    """A field may be in a column of another name; one that does not exist is refused before anything is read."""
    file = write("phones.csv", {"fcm": "abc", "user": 7}, {"fcm": "abd", "user": 8})
    said = command("import-phones", file, "--provider", "fcm", "--column", "token=fcm", "--column", "owner=user")
    assert said.code == 0, said
    assert [(row[0], row[2], row[5]) for row in conn.execute(PHONES)] == [("fcm", "abc", "7"), ("fcm", "abd", "8")]
    for words, text in (
        (("--column", "tokn=fcm"), "--column must be like owner=user_id, got tokn=fcm."),
        (("--column", "token"), "--column must be like owner=user_id, got token=."),
        (("--from", "apns"), "is not one of"),
    ):
        wrong = command("import-phones", file, *words)
        assert wrong.code == 2
        assert text in wrong.err
    for name, text in (("a.csv", "cannot be read"), ("a.xlsx", "must end in .csv or .jsonl")):
        wrong = command("import-phones", file.with_name(name))
        assert (wrong.code, text in wrong.err) == (2, True), wrong


def test_an_import_that_is_killed_goes_on(conn, dsn: str, command: Command, write: Callable[..., Path]) -> None:
    """Killed at any time it goes on where it was: each phone is there once, each refused line is listed once."""
    rows = [{"token": f"ExponentPushToken[{n}]" if n % 1_000 else "bad", "owner": str(n)} for n in range(1, 6_001)]
    file = write("phones.csv", *rows)
    progress = file.with_name("phones.csv.progress")
    kills = 0
    for _ in range(2):
        before = progress.read_text() if progress.exists() else ""
        running = subprocess.Popen(
            [RELEVO, "import-phones", file], env={**os.environ, "DATABASE_URL": dsn}, stdout=subprocess.DEVNULL
        )
        eventually(
            lambda b=before, r=running: r.poll() is not None or (progress.exists() and progress.read_text() != b)
        )
        running.kill()
        kills += running.wait() != 0
    assert kills >= 1
    if progress.exists():
        with file.with_name("phones.csv.refused.csv").open("a", encoding="utf-8") as listed:
            listed.write("17,left by a batch that was not noted\n")
    assert command("import-phones", file).code == 1
    assert conn.execute("select count(*), count(distinct owner) from relevo.device_installations").fetchone() == (
        5_994,
        5_994,
    )
    assert [line for line, _ in refused(file)[1:]] == [str(n + 1) for n in range(1_000, 6_001, 1_000)]
    assert not progress.exists()


def test_a_file_that_changed_is_begun_anew_by_hand(command: Command, write: Callable[..., Path]) -> None:
    """How far an import of another file came says nothing of this one."""
    file = write("phones.csv", {"token": "ExponentPushToken[a]"})
    progress = file.with_name("phones.csv.progress")
    progress.write_text(json.dumps({"line": 1, "registered": 0, "refused": 0, "refused_bytes": 0, "file_bytes": 7}))
    said = command("import-phones", file)
    assert (said.code, "changed since its import was broken off" in said.err) == (2, True)
    progress.write_text("{")
    assert "cannot be read" in command("import-phones", file).err
    progress.unlink()
    assert command("import-phones", file).code == 0


def test_a_long_file_is_not_kept_in_memory(write: Callable[..., Path]) -> None:
    """Reading 20,000 phones takes the memory of a few."""
    file = write("phones.csv", *({"token": f"ExponentPushToken[{n}]"} for n in range(20_000)))
    tracemalloc.start()
    try:
        assert sum(1 for _ in phone_files.read(file)) == 20_000
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_a_phone_that_is_there_keeps_its_id(conn, command: Command, write: Callable[..., Path]) -> None:
    """One that moves from Expo to a token of its own is named by its id in the file."""
    phone = relevo.register(conn, Installation("ExponentPushToken[a]", owner="ana"))
    file = write("phones.jsonl", {"installation_id": str(phone), "provider": "fcm", "token": "abc"})
    assert command("import-phones", file).code == 0
    assert conn.execute("select installation_id, provider, owner from relevo.device_installations").fetchall() == [
        (phone, "fcm", "ana")
    ]
