"""The commands of the pages are run, each page's in its order, on a database and an archive such as it speaks of."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
import requests

from relevo.client import values, verbs
from support import installed
from support.docs_pages import PAGES, ROOT, blocks
from support.http_server import Served
from support.phones import add_phones, fan_out
from support.relevo_command import Command, make_command, make_installed_command

README = ROOT / "README.md"
KEPT = ROOT / "tests" / "archive" / "kept" / "v1"
ROLES = ("app", "shop", "relevo_worker")
ELSEWHERE = {
    "run": "it goes on until it is stopped: tests/runtime",
    "sandbox": "likewise: tests/sandbox",
    "make": "tests/house/test_makefile.py; make run-cycle and make psql are the commands themselves",
    "docker": "tests/scripts/deploy replays what the images do",
    "helm": "tests/scripts/deploy renders the chart with these values",
    "kubectl": "it needs a cluster",
    "for": "a loop of the shell that writes passwords",
    "systemctl": "tests/scripts/deploy checks the unit",
    "systemd-run": "it needs a running systemd",
    "useradd": "it belongs to the machine",
    "install": "likewise",
    "cp": "likewise",
    "python3": "it installs: tests/house/test_wheel.py does",
    "pip": "likewise",
}
"""What begins a command that is not run here, and why."""
MAY_COMPLAIN = {"status", "doctor"}
"""They leave with 1 where something is not valid: here no worker runs."""
ASSIGNED = re.compile(r"([A-Z_]+)=(.*)")


def console(page: Path) -> Iterator[list[str]]:
    """Yield the words of each command of a page, in order, without their comments."""
    for block in blocks(page):
        if block.words[:1] == ("console",):
            for line in block.text.replace("\\\n", " ").splitlines():
                if line.startswith("$ "):
                    yield shlex.split(line[2:], comments=True)


def first_word(words: list[str]) -> str:
    """Return what a command is known by: the verb of `relevo`, and the program's name of others."""
    program, *rest = [word for word in words if not ASSIGNED.fullmatch(word)]
    return rest[0] if Path(program).name == "relevo" else Path(program).name


def runnable(page: Path) -> Iterator[list[str]]:
    """Yield those of a page's commands that are run here."""
    yield from (words for words in console(page) if words[0] != "export" and first_word(words) not in ELSEWHERE)


@dataclass
class Reader:
    """Somebody who types what a page says, with an address, a token and a month of his own."""

    command: Command
    served: Served
    setenv: Callable[[str, str], None]
    token: str
    revocable: str
    typed: list[str] = field(default_factory=list)

    def type(self, words: list[str]) -> None:
        """Type one command, and see that it does as it is told."""
        if words[0] == "export":
            words = words[1:]
        assigned = [ASSIGNED.fullmatch(word) for word in words]
        for each in filter(None, assigned):
            if not each[1].endswith("_URL"):
                self.setenv(each[1], each[2])
        rest = [self._own(word) for word, each in zip(words, assigned, strict=True) if each is None]
        if not rest or first_word(rest) in ELSEWHERE:
            return
        self.typed.append(first_word(rest))
        (self._call if rest[0] == "curl" else self._ask)(rest)

    def _own(self, word: str) -> str:
        """Put one's own month and token for those of the page."""
        word = word.replace("2026-05", "2025-03").replace("year = 2026", "year = 2025")
        return word.replace("0123456789ab", self.revocable).replace("$TOKEN", self.token)

    def _ask(self, words: list[str]) -> None:
        said = self.command(*words[1:])
        assert said.code == 0 or (words[1] in MAY_COMPLAIN and said.code == 1), (words, said)
        assert said.out, words

    def _call(self, words: list[str]) -> None:
        """Do what curl does with these words."""
        headers = dict(word.split(": ", 1) for n, word in enumerate(words) if words[n - 1] == "-H")
        data = [word for n, word in enumerate(words) if words[n - 1] == "-d"]
        [url] = [word for n, word in enumerate(words) if "://" in word]
        there = url.replace("http://127.0.0.1:8080", self.served.server.url).replace("wait_ms=15000", "wait_ms=1")
        method = "POST" if data else "GET"
        answer = requests.request(method, there, headers=headers, data="".join(data) or None, timeout=60)
        assert answer.status_code in (200, 201, 202), (words, answer.text)


@pytest.fixture
def reader(monkeypatch, capsys, dsn: str, conn: psycopg.Connection[Any], build, tmp_path: Path) -> Iterator[Reader]:
    """A database with three events and a user's phone, roles to grant to, an archive, and an HTTP server."""
    for name in ROLES:
        conn.execute(f"create role {name}".encode())
    shutil.copytree(KEPT, tmp_path / "archive")
    monkeypatch.setenv("ARCHIVE_STORE", "folder")
    monkeypatch.setenv("ARCHIVE_FOLDER", str(tmp_path / "archive"))
    monkeypatch.setenv("EXPO_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.chdir(tmp_path)
    built = build()
    served = Served(built)
    served.start()
    [phone] = add_phones(conn, 1)
    conn.execute("update relevo.device_installations set owner = 'user-7' where installation_id = %s", [phone])
    for n in range(3):
        verbs.enqueue(conn, values.Event("order.shipped", f"order {n}", "On its way", audience=values.Owners("user-7")))
    fan_out(built)
    callers = [served.client(role).token or "" for role in ("app", "viewer")]
    command = (
        make_installed_command(monkeypatch, dsn) if installed.IS_ANOTHER else make_command(monkeypatch, capsys, dsn)
    )
    yield Reader(command, served, monkeypatch.setenv, callers[0], callers[1].split("_")[1])
    served.close()
    for name in ROLES:
        conn.execute(f"drop owned by {name}; drop role {name}".encode())


@pytest.mark.parametrize("page", [page for page in PAGES if any(runnable(page))], ids=lambda page: page.stem)
def test_each_command_does_as_it_is_told(page: Path, reader: Reader) -> None:
    """Typed one after the other, every command of a page that ends by itself ends well, and says something."""
    for words in console(page):
        reader.type(words)
    assert len(reader.typed) == len(list(runnable(page)))


def test_what_is_not_run_has_a_reason() -> None:
    """Each reason is for a command that stands on some page; all else is run."""
    typed = [words for page in [*PAGES, README] for words in console(page) if words[0] != "export"]
    assert {first_word(words) for words in typed} >= ELSEWHERE.keys()
