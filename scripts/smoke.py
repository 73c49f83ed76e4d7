"""Drive one tender through a running Relevo: tender, push, receipt, the rows of its runs; say each step and its time.

It needs that instance's settings (DATABASE_URL and its kin), and a sandbox to send to: no real phone gets anything.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from uuid import uuid4

import requests

from relevo.app import service
from relevo.cli.common import build, load_settings
from relevo.client import verbs
from relevo.client.values import Event, Installation, Preference
from relevo.config import Settings
from relevo.core.errors import RelevoError
from relevo.database.pool import Database
from relevo.operators import deliveries, fleet, runs
from relevo.sandbox import embedded

T = TypeVar("T")
_TENDER = "new_licitacion"
_RUNS = ("fanout", "dispatch", "receipt")
_MORE_S = 120.0


class SmokeError(Exception):
    """A step that did not come to its end, in a sentence."""


class Steps:
    """Says what happens, and how long each step took."""

    def __init__(self, within_s: float) -> None:
        self._within_s = within_s
        self._began = self._last = time.monotonic()

    def say(self, what: str) -> None:
        """Print that a step is done."""
        now = time.monotonic()
        print(f"{now - self._began:7.2f} s  {now - self._last:+7.2f}  {what}", flush=True)
        self._last = now

    def until(self, look: Callable[[], T | None], what: str) -> T:
        """Look again and again until something is seen."""
        deadline = time.monotonic() + self._within_s
        while (seen := look()) is None:
            if time.monotonic() > deadline:
                raise SmokeError(f"Not within {self._within_s:.0f} s: {what}. `relevo status` may tell why.")
            time.sleep(0.1)
        return seen


def find_sandbox(settings: Settings) -> str:
    """Return the address of the instance's sandbox; refuse to go on without one."""
    address = settings.expo_base_url or embedded.address(settings.relevo_data_dir) or ""
    try:
        with requests.Session() as session:
            session.trust_env = False
            found = bool(address) and session.get(f"{address}/sandbox/totals", timeout=5).ok
    except OSError:
        found = False
    if not found:
        raise SmokeError(
            "This instance sends to no sandbox that answers. Start `make run`, or `relevo sandbox` and an instance "
            "whose EXPO_BASE_URL is its address; give this command the same settings."
        )
    return address


def received(address: str, token: str) -> dict[str, Any] | None:
    """Return what a phone of the sandbox got last, if it got anything."""
    with requests.Session() as session:
        session.trust_env = False
        answer = session.get(f"{address}/sandbox/phones/{token}", timeout=10)
    return dict(answer.json()["messages"][-1]["message"]) if answer.ok else None


def folder_of(settings: Settings) -> Path | None:
    """Return the folder whose tenders the instance reads, if it reads one."""
    if "folder" not in settings.sources:
        return None
    return settings.folder_source_dir or (settings.sample_folder if settings.sample_folder.is_dir() else None)


def offer(settings: Settings, folder: Path, word: str) -> tuple[str, str]:
    """Drop a tender that only our phone, and those that want everything, asked for; return its event's name."""
    line = {"codigo": word, "nombre": f"Prueba de humo {word}", "region": "Región de Ñuble", "cierra_en_dias": 1}
    half = folder / f".{word}"
    half.write_text(json.dumps(line, ensure_ascii=False) + "\n", encoding="utf-8")
    half.rename(folder / f"{word}.jsonl")
    return _TENDER, f"{'folder' if settings.folder_source_dir else 'sample'}:{word}"


def smoke(settings: Settings, database: Database, ingest: Callable[[], object], within_s: float) -> None:
    """Go the whole way once."""
    steps = Steps(within_s)
    address = find_sandbox(settings)
    steps.say(f"the sandbox answers at {address}")
    if not fleet.has_scheduler(database):
        raise SmokeError("No worker runs on this database. Start `relevo run`.")
    steps.say("a worker is alive")
    word = f"humo{uuid4().hex[:12]}"
    token = f"ExponentPushToken[{word}]"
    with database.transaction() as connection:
        began: datetime = connection.execute(b"select now()").fetchone()[0]  # type: ignore[index]
        phone = verbs.register(connection, Installation(token, owner=word))
        verbs.set_preference(connection, phone, "default", Preference(keywords=(word,)))
    steps.say("a phone is registered")
    try:
        follow(steps, settings, database, ingest, (address, token, word, phone))
    finally:
        tidy(settings, database, word)
    tell_runs(steps, database, began)
    print("It works.")


def follow(
    steps: Steps, settings: Settings, database: Database, ingest: Callable[[], object], named: tuple[Any, ...]
) -> None:
    """Follow one tender to the phone and back."""
    address, token, word, phone = named
    folder = folder_of(settings)
    if folder is None:
        name: Any = ("smoke", word)
        with database.transaction() as connection:
            verbs.enqueue(connection, Event("smoke", word, "Prueba de humo", audience=[phone]))
        steps.say("an event is enqueued (this instance reads no folder of tenders)")
    else:
        name = offer(settings, folder, word)
        ingest()

    def event() -> Any:
        with database.transaction() as connection:
            return verbs.get(connection, name)

    found = steps.until(event, "the tender is read and becomes an event")
    steps.say(f"tender and event {found.id} are there")
    message = steps.until(lambda: received(address, token), "the phone gets its push")
    steps.say(f"the phone got its push: {message.get('title')}")

    def confirmed() -> bool | None:
        rows = deliveries.of_event(database, found.id, limit=1000)
        return any(row["installation_id"] == phone and row["status"] == "ok" for row in rows) or None

    steps.until(confirmed, "the receipt confirms it (RECEIPT_FIRST_POLL_MS says when it is first asked for)")
    steps.say("its receipt confirms it")


def tidy(settings: Settings, database: Database, word: str) -> None:
    """Forget the phone, and take the tender away again."""
    with database.transaction() as connection:
        verbs.forget(connection, owner=word)
    if (folder := folder_of(settings)) is not None:
        (folder / f"{word}.jsonl").unlink(missing_ok=True)


def tell_runs(steps: Steps, database: Database, began: datetime) -> None:
    """Print which rows the runs left."""
    for cycle in _RUNS:

        def row(cycle: str = cycle) -> Any:
            rows = runs.latest(database, cycle=cycle, limit=50)
            return next((each for each in rows if each["finished_at"] and each["finished_at"] >= began), None)

        run = steps.until(row, f"a run of {cycle} has its row")
        steps.say(f"run {run['id']} of {cycle}: {run['outcome']}")


def main(words: Sequence[str] | None = None) -> int:
    """Read the settings of the instance and go."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--within", type=float, default=None, metavar="S", help="seconds that each step may take")
    chosen = asked.parse_args(words)
    try:
        settings = load_settings()
        within_s = chosen.within or settings.receipt_first_poll_ms / 1000 + _MORE_S
        with build(settings, "run-cycle") as built:
            smoke(settings, built.database, lambda: service.run_cycle(built, "ingest:folder"), within_s)
    except (SmokeError, RelevoError) as error:
        give_up(error)
    return 0


def give_up(error: Exception) -> NoReturn:
    """End with what did not work."""
    print(f"It does not work: {error}", file=sys.stderr)
    raise SystemExit(1)


if __name__ == "__main__":
    raise SystemExit(main())
