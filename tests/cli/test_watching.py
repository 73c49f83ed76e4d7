"""Commands that look: deliveries page by page, sources in words, the fleet redrawn; and what every command owes a user."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any
from uuid import UUID

import psycopg
import pytest
from typer.main import get_command, get_group
from typer.testing import CliRunner

from relevo import cli
from relevo.cli import watching
from relevo.cli.common import span
from relevo.core import logs
from relevo.operators import deliveries
from support import soak
from support.deliveries import TODAY, add_event

PHONE = UUID("7".rjust(32, "0"))
LOAD = """
insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, status, attempt_count,
  completed_at, provider_ticket_id, last_error_code)
select %(day)s::date, (%(events)s::bigint[])[n %% 2 + 1], lpad(to_hex(n), 32, '0')::uuid, 'notice',
       case when n %% 10 = 0 then 'failed' else 'ok' end, 1, now(), 'ticket', case when n %% 10 = 0 then 'MessageTooBig' end
  from generate_series(1, %(count)s) n
"""


@pytest.fixture
def ask(dsn: str) -> Callable[..., Any]:
    """Ask the command line in this process: `ask("deliveries", "--json")`."""
    environ = {"DATABASE_URL": dsn, "COLUMNS": "250", "RELEVO_INSTANCE": "tests"}
    return lambda *words: CliRunner().invoke(cli.cli, [str(word) for word in words], env=environ)


@pytest.fixture
def events(conn: psycopg.Connection[Any]) -> list[int]:
    """Two events with 30 deliveries each, every tenth of all failed."""
    made = [add_event(conn, event=number, day=TODAY) for number in (1, 2)]
    conn.execute(LOAD, {"day": TODAY, "events": made, "count": 60})
    return made


def told(result: Any) -> list[dict[str, Any]]:
    """Read what a command printed as JSON."""
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_deliveries_come_page_by_page(ask, events) -> None:
    """Newest first, each page going on where the one before ended, until all were shown once."""
    seen: list[int] = []
    before: list[str] = []
    while len(seen) < 60:
        page = ask("deliveries", "--limit", 25, *before)
        seen += [row["id"] for row in told(ask("deliveries", "--limit", 25, "--json", *before))]
        if "More: --before " not in page.stdout:
            break
        before = ["--before", page.stdout.split("--before ")[1].split()[0]]
    assert seen == sorted(seen, reverse=True)
    assert len(set(seen)) == 60


def test_each_try_of_a_delivery_is_told_to_machines(ask, events, conn) -> None:
    """With --json a delivery has what went wrong in each try, oldest first; one that went well has nothing."""
    failed, *_ = told(ask("deliveries", "--state", "failed", "--json"))
    conn.execute(
        """insert into relevo.failed_attempts (event_day, delivery_id, n, at, attempt, found_by, became, error_code)
           select %s, %s, n, now(), n, 'dispatch', case n when 3 then 'failed' else 'retryable' end, 'HTTP_50' || n
             from generate_series(1, 3) n""",
        [TODAY, failed["id"]],
    )
    seen = {row["id"]: row["failed_attempts"] for row in told(ask("deliveries", "--limit", 100, "--json"))}
    tries = seen.pop(failed["id"])
    assert [(each["attempt"], each["status"], each["error_code"]) for each in tries] == [
        (1, "retryable", "HTTP_501"), (2, "retryable", "HTTP_502"), (3, "failed", "HTTP_503"),
    ]  # fmt: skip
    assert set(map(len, seen.values())) == {0}


def test_a_page_that_ends_early_says_so(ask, events, conn, monkeypatch) -> None:
    """Where what fits is looked for among so many, a page that found fewer names the bound and the way on."""
    monkeypatch.setattr(deliveries, "_LOOKED_AT", 15)
    page = ask("deliveries", "--state", "unknown").stdout
    assert "The search stopped after 15 deliveries" in page
    more = ask("deliveries", "--state", "failed", "--json", "--before", page.split("--before ")[1].split()[0])
    assert (len(told(more)), "Continue with --before" in more.stderr) == (1, True)
    monkeypatch.setattr("relevo.operators.events.MAX_LIMIT", 1)
    page = ask("events", "--state", "sent").stdout
    assert "The search stopped after 1 events" in page
    assert "search stopped" not in ask("events", "--state", "sent", "--before", 1).stdout


def test_deliveries_by_event_phone_and_state(ask, events) -> None:
    """Each filter, and all together, name what they should; a page of one event goes on behind its last phone."""
    of_event = told(ask("deliveries", "--event", events[0], "--limit", 1000, "--json"))
    assert {row["event_id"] for row in of_event} == {events[0]}
    assert len(of_event) == 30
    failed = told(ask("deliveries", "--event", events[0], "--state", "failed", "--json"))
    assert (len(failed), {row["last_error_code"] for row in failed}) == (6, {"MessageTooBig"})
    (one,) = told(ask("deliveries", "--installation", PHONE, "--json"))
    assert one["installation_id"] == str(PHONE)
    (same,) = told(ask("deliveries", "--event", one["event_id"], "--installation", PHONE, "--json"))
    assert same["id"] == one["id"]
    more = ask("deliveries", "--event", events[0], "--limit", 20).stdout.split("--before ")[1].split()[0]
    assert len(told(ask("deliveries", "--event", events[0], "--before", more, "--json"))) == 10


def test_a_wrong_filter_is_told(ask, events) -> None:
    """A state or a place that does not exist is refused with what there is."""
    for words in [("--state", "gone"), ("--before", "yesterday"), ("--before", "2026-13-01:5")]:
        result = ask("deliveries", *words)
        assert result.exit_code != 0, words
        assert "There is no state" in str(result.exception) or "is no place" in str(result.exception), words


def test_what_is_not_there_is_told(ask, events) -> None:
    """An event that nobody enqueued, or an id that is none, is wrong usage; one without deliveries that fit is not."""
    for words, told in [
        (("--event", 99_999), "There is no event 99999."),
        (("--installation", "abc"), "abc is not an installation id."),
    ]:
        assert str(ask("deliveries", *words).exception).startswith(told), words
    assert "No delivery matches." in ask("deliveries", "--event", events[0], "--state", "unknown").stdout


def test_sources_in_words(ask, conn) -> None:
    """How far a source was read, what it said last and what it could not use, on a screen and as JSON."""
    assert "No source has been read yet" in ask("sources").stdout
    conn.execute(
        """insert into relevo.source_state (source, cursor, last_outcome, last_detail, last_ok_at, problems)
           values ('folder', '{"last": "a.jsonl", "files": ["a", "b", "c", "d"]}', 'rejected', 'line 3 is no JSON', now() - interval '3 hours', '{no disk}')"""
    )
    conn.execute("insert into relevo.ingest_rejects (source, place, reason) values ('folder', 'a.jsonl:3', 'no JSON')")
    said = ask("sources").stdout
    for words in (
        "Read up to: last a.jsonl; files read 4 (a, b, c, …)",
        "line 3 is no JSON",
        "last read 3 h ago",
        "no disk",
        "1 item of this source could not",
    ):
        assert words in said
    assert told(ask("sources", "--json"))[0].items() >= {"source": "folder", "rejects": 1, "given_up": 0}.items()


def test_status_counts_dead_letters(ask, conn, events) -> None:
    """What failed for good is counted with the commands that look at it; where nothing did, nothing is said."""
    assert "Dead letters" not in ask("status").stdout
    conn.execute(
        "insert into relevo.dead_letters (event_day, delivery_id, event_id, project, error_code, died_at) select event_day, id, "
        "notification_event_id, project, last_error_code, now() from relevo.notification_deliveries where status = 'failed'"
    )
    said = ask("status").stdout
    assert "Dead letters: 6 deliveries failed for good; `relevo redrive --dry-run` shows why" in said
    assert json.loads(ask("status", "--json").stdout)["dead_letters"] == 6


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.256, "0.26 s"), (95, "95 s"), (531, "9 min"), (7_300, "2 h"), (260_000, "3 days")]
)
def test_times_can_be_read_at_a_glance(seconds, words) -> None:
    """Nobody has to divide by sixty."""
    assert span(seconds) == words


def test_status_looks_again_and_again(ask) -> None:
    """In a pipe --watch prints one overview after the other, plain and one JSON object per look if asked."""
    plain = ask("status", "--watch", "--every", 0.2, "--times", 2)
    assert plain.stdout.count("No worker is running") == 2
    assert "\x1b" not in plain.stdout
    looks = ask("status", "--watch", "--every", 0.2, "--times", 3, "--json").stdout.splitlines()
    assert [next(iter(json.loads(line))) for line in looks] == ["health"] * 3


def test_on_a_terminal_the_overview_is_redrawn(ask, monkeypatch) -> None:
    """A terminal shows each look in the place of the one before, on a screen of its own that is left at the end."""
    monkeypatch.setattr(watching.out, "_force_terminal", True)
    said = ask("status", "--watch", "--every", 0.2, "--times", 2).stdout
    assert said.count("\x1b[?1049h") == said.count("\x1b[?1049l") == 1
    assert said.count("No worker is running") >= 2


HEAVY = ["relevo.app", "boto3", "pyarrow", "apscheduler", "fastapi", "uvicorn", "prometheus_client", "relevo.sandbox"]
"""What runs cycles, serves, sends or archives."""


def loaded(dsn: str, heavy: list[str], *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command, and have it tell at last which of these it loaded, whether and how often it looked for garbage."""
    program = """if True:
        import atexit, gc, sys
        words = sys.argv.index("--")
        heavy, sys.argv = sys.argv[1:words], ["relevo", *sys.argv[words + 1:]]
        gc.collect()
        before = gc.get_stats()[2]["collections"]
        looked = lambda: (gc.isenabled(), gc.get_stats()[2]["collections"] - before)
        atexit.register(lambda: print([name for name in heavy if name in sys.modules], *looked(), file=sys.stderr))
        from relevo.__main__ import main
        main()
        """
    return subprocess.run(
        [sys.executable, "-c", program, *heavy, "--", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "DATABASE_URL": dsn},
        check=False,
    )


def test_status_loads_little(dsn: str) -> None:
    """A glance loads no push service, no store, no server, and nothing that writes log lines.

    Garbage is not looked for while it loads.
    """
    done = loaded(dsn, ["structlog", "relevo.client.verbs", "relevo.core.model", *HEAVY], "status", "--json")
    assert (done.returncode, done.stderr.strip()) == (1, "[] True 0")  # nothing runs here: it is not healthy
    assert json.loads(done.stdout)["workers"] == []


@pytest.mark.parametrize("words", soak.cases([["events"]], whole=[["events"], ["audit"], ["config"]]), ids=str)
def test_what_looks_loads_little(dsn: str, words: list[str]) -> None:
    """A command loads its own file: to look at events needs nothing of what runs cycles, serves, sends or archives.

    Garbage is not looked for while it loads, and then it is again.
    """
    done = loaded(dsn, HEAVY, *words)
    assert (done.returncode, done.stderr.strip()) == (0, "[] True 0")


def test_each_command_is_in_the_file_it_is_looked_for() -> None:
    """The table by which a command's file is found, and no other loaded, names every command of every file."""
    files = {name: tuple(get_group(import_module(f"relevo.cli.{name}").cli).commands) for name in cli.PARTS}
    assert files == cli.PARTS


def test_help_lists_each_command_under_one_heading() -> None:
    """Headings a person knows divide the list, and each command is under one of them."""
    named = [name for names in cli.HEADINGS.values() for name in names]
    assert sorted(named) == sorted(name for names in cli.PARTS.values() for name in names)
    call = [sys.executable, "-m", "relevo", "--help"]
    shown = subprocess.run(call, capture_output=True, text=True, env={**os.environ, "COLUMNS": "80"}, check=True).stdout
    places = [shown.index(f"─ {heading} ─") for heading in cli.HEADINGS]
    assert places == sorted(places)
    assert max(map(len, shown.splitlines())) <= 80


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every command with its name."""

    def walk(found: Any, names: list[str]) -> Iterator[tuple[str, Any]]:
        if not hasattr(found, "list_commands"):
            yield " ".join(names), found
            return
        for name in found.list_commands(None):
            yield from walk(found.get_command(None, name), [*names, name])

    return walk(get_command(cli.cli), [])


def test_every_command_shows_an_example() -> None:
    """Each --help ends with a line that can be copied, of its own words or behind them, and not with both."""
    silent = [name for name, found in commands() if ("relevo " in (found.epilog or "")) == ("\b" in (found.help or ""))]
    assert len(list(commands())) > 40
    assert not silent, silent


def test_examples_are_understood() -> None:
    """Every example of ours names options and arguments that its command has."""
    tried = 0
    for name, found in commands():
        if example := re.match("Example: `?(relevo [^`]*)", found.epilog or ""):
            words = shlex.split(example[1])
            assert words[: len(name.split()) + 1] == ["relevo", *name.split()], name
            found.make_context(name, words[len(name.split()) + 1 :])
            tried += 1
    assert tried > 50


def test_all_can_be_read_by_machines() -> None:
    """Every command that comes to an end can tell what it found or did as JSON."""
    endless = {"run", "serve", "sandbox", "psql", "mcp", "owner export"}
    without = {name for name, found in commands() if "--json" not in [o for p in found.params for o in p.opts]}
    assert without == endless


def test_the_shell_can_complete(dsn: str) -> None:
    """`relevo --show-completion` prints a script, and the shell gets the commands that fit."""
    environ = {
        "_RELEVO_COMPLETE": "complete_bash",
        "COMP_WORDS": "relevo deliveri",
        "COMP_CWORD": "1",
        "PATH": "/usr/bin:/bin",
    }
    done = subprocess.run([sys.executable, "-m", "relevo"], env=environ, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["deliveries"], done.stderr


@pytest.fixture(autouse=True)
def _no_handlers() -> Iterator[None]:
    """Leave no log handler of a command behind."""
    yield
    import logging  # noqa: PLC0415

    root = logging.getLogger()
    for handler in [each for each in root.handlers if isinstance(each, logs._Handler)]:
        root.removeHandler(handler)


def test_a_place_is_read_as_it_was_written(events, dsn: str) -> None:
    """A page's next place can be handed in as it is."""
    assert deliveries._place("2026-11-15:17", by_phone=False)[1] == "17"
    assert deliveries._place(f"2026-11-15:{PHONE}", by_phone=True)[1] == str(PHONE)
