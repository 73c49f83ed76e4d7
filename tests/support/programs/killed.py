"""Runs cycles in processes that kill themselves at a named statement.

Reads one task per line, as JSON, and answers each with a line: the signal that ended its process, and how often each
named statement was executed. Each task has a process of its own, forked from this one, which has imported everything
and connected to nothing.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import psycopg

from relevo import app, config
from relevo.core import logs, queries
from relevo.core.items import Fetched, Item, Reject
from relevo.core.ports import SourceContext
from relevo.cycles import ingest
from relevo.delivery.composing import rendering

Counts = Counter[str]


@dataclass(frozen=True)
class Tiny:
    """A source with three things to say: some tenders, what became of them and some more, and nothing new."""

    name: str
    interval_ms: int = 60_000
    seeds_silently: bool = False

    def fetch(self, cursor: Mapping[str, Any], context: SourceContext) -> Fetched:
        """Say the next thing, asking the context for all it has."""
        context.now()
        context.take_turn(self.name, pace_ms=1, daily_limit=1_000)
        context.slow_down(self.name, pace_ms=context.pace_ms(self.name, 1))
        known = context.known(self.name, ["changing", "withdrawn"])
        spoken = cursor.get("spoken", 0)
        assert len(known) == (2 if spoken else 0), known
        bad = Reject(f"{self.name}/bad", "cannot be read", retry=True)
        assert not list(context.rejects_due(5))
        changing = self.item("changing", "Región del Ñuble")
        if spoken == 0:
            items = (changing, self.item("withdrawn", "Región del Ñuble"))
            return Fetched("ok", {"spoken": 1}, items, rejects=(bad,), more=True)
        changed = replace(changing, region="Región del Maule", fingerprint="2")
        if spoken == 1:
            withdrawn = replace(self.item("withdrawn", "Región del Ñuble"), fingerprint="2", withdrawn=True)
            new = (self.item("north", "Región del Ñuble"), self.item("south", "Región del Maule"))
            return Fetched("ok", {"spoken": 2}, (changed, withdrawn, *new), resolved=(bad.place,), more=True)
        return Fetched("unchanged", cursor, (changed,))

    def item(self, name: str, region: str) -> Item:
        """Make a tender."""
        return Item(self.name, name, f"Tender {name}", "1", region=region)


def run(task: Mapping[str, Any], counts: Counts) -> str:
    """Run one cycle once, by hand, and return how it ended."""
    settings = config.load({"DATABASE_URL": sys.argv[1], "FANOUT_SLICE_SIZE": "2"}, None)
    watch(task.get("kill"), counts)

    def tiny(settings: config.Settings, _claims: object) -> Any:
        return ingest.cycle(settings, Tiny(task["source"]), rendering.tender)

    makers = [tiny] if task["cycle"] == "ingest" else []
    with app.build(settings, app.Parts(cycles=makers), role="run-cycle") as built:
        built.worker.record_start("run-cycle", [task["cycle"]])
        report = built.runner.run(built.cycles([task["cycle"]])[0], "manual")
        assert report.outcome in ("ok", "idle"), report
        return report.outcome


def watch(kill: Mapping[str, Any] | None, counts: Counts) -> None:
    """Count the named statements as they are executed, and kill this process before or after one of them."""
    steps = ("ingest", "fanout", "runaway", "news", "digest")
    names = {body: f"{step}.{name}" for step in steps for name, body in queries.load(step).items()}
    sentences = {body.splitlines()[0]: name for body, name in names.items()}
    execute = psycopg.Cursor.execute

    def named(query: bytes) -> str | None:
        """Tell which one it is, also of one that is sent together with what begins and commits it."""
        return names.get(query) or next((sentences[line] for line in query.splitlines() if line in sentences), None)

    def watched(self: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
        name = named(query) if isinstance(query, bytes) else None
        if name is None:
            return execute(self, query, *args, **kwargs)
        counts[name] += 1
        due = kill is not None and (kill["name"], kill["nth"]) == (name, counts[name])
        if due and kill["when"] == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            return execute(self, query, *args, **kwargs)
        finally:
            if due:
                os.kill(os.getpid(), signal.SIGKILL)

    psycopg.Cursor.execute = watched  # type: ignore[method-assign]


def fork(task: Mapping[str, Any]) -> dict[str, Any]:
    """Run a task in a process of its own, and tell how that ended."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        counts: Counts = Counter()
        os.close(reading)
        try:
            outcome = run(task, counts)
            os.write(writing, json.dumps({"outcome": outcome, "counts": counts}).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(pid, 0)
    return {"signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0} | json.loads(said or "{}")


def main() -> None:
    """Answer task by task until there are no more."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    logs.configure("error", "json")
    for line in sys.stdin:
        answers.write(json.dumps(fork(json.loads(line))) + "\n")


if __name__ == "__main__":
    main()
