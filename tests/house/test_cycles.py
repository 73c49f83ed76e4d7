"""A cycle is one file: whatever tells of cycles finds them in `relevo/cycles/`, and nothing else lists them."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import cycle_docs
from relevo import config, cycles
from relevo.app import service
from relevo.core.errors import ConfigError
from relevo.operators import runs
from relevo.operators.health import find_problems
from relevo.operators.health.problem import Observed

ROOT = Path(__file__).resolve().parents[2]
NAMES = frozenset(cycles.names())
NAMED_FOR_A_REASON = {
    "server/relevo/database/instance.py": "those that hold work back in a copied database, and are called once it is adopted",
    "server/relevo/delivery/projects/connection_leases.py": "those that use connections to push services",
    "server/relevo/http/events.py": "who can have found a failure: values of the answer",
    "server/relevo/operators/fleet.py": "sums of counters that only they have",
    "server/relevo/sandbox/demo.py": "the nightly ones, which the demo runs at once",
    "scripts/smoke.py": "the way of one push",
    "sql/functions/runtime/awake_marker.sql": "those that the database calls",
    "sql/functions/runtime/forget_awake.sql": "those that the database calls",
    "sql/functions/settle/end_claim.sql": "who found a failure",
    "sql/queries/clock_set_back.sql": "those whose work was due meanwhile",
    "sql/queries/deliveries.sql": "why an open delivery waits",
    "sql/queries/events.sql": "between which instants an event waits for each on its way",
    "sql/tables/deliveries.sql": "who can have found a failure",
}
"""Files that name several cycles because of what these do, not because they are the cycles that there are."""
TRIED_OUT = re.compile(r"scripts/(?:bench|chaos|mutants)/|sql/migrations/")
"""What runs chosen cycles to measure and to break them, and what past versions did."""

THROW_AWAY = '''
"""Tidying: a cycle that is there for a moment."""
from relevo.core.model import Step
from relevo.runtime.cycle_facts import CycleFacts
from relevo.runtime.runs import Cycle
from relevo.runtime.timing import Every

FACTS = CycleFacts(
    "tidying",
    does="puts things where they belong",
    counts={"things_moved": "things that were moved"},
    after="fanout",
    singleton=True,
    waiting=lambda backlog: f"{backlog.events} things lie about",
)


def cycles(given):
    return [Cycle.of(FACTS, Every(given.settings.reaper_interval_ms), lambda run: Step({"things_moved": 1}, items=1))]
'''


@pytest.fixture
def throw_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put one file more beside the cycles."""
    (tmp_path / "tidying.py").write_text(THROW_AWAY, encoding="utf-8")
    monkeypatch.setattr(cycles, "__path__", [*cycles.__path__, str(tmp_path)])
    cycles.modules.cache_clear()
    yield
    cycles.modules.cache_clear()
    sys.modules.pop("relevo.cycles.tidying", None)


@pytest.mark.usefixtures("throw_away")
def test_a_new_cycle_is_one_file(build: Any) -> None:
    """One file more is a cycle that settings may name, that runs and ticks, in its place, and that status, lists and the guide tell of."""
    names = cycles.names()
    assert "tidying" in names
    assert {*names[names.index("tidying") :]} >= {"dispatch", "receipt", "cleanup", "archive-export"}
    assert config.load({"WORKER_CYCLES": "tidying"}, None, cycles=cycles.facts).worker_cycles == ("tidying",)
    with pytest.raises(ConfigError, match=r"reaper, .*tidying"):
        config.load({"WORKER_CYCLES": "untidying"}, None, cycles=cycles.facts)
    app = build()
    assert [report.outcome for report in service.run_cycle(app, "tidying")] == ["ok"]
    assert [report.outcome for report in service.tick(build(role="tick")) if report.cycle == "tidying"] == ["ok"]
    assert "tidying" in runs.known_cycles(app.database, cycles.names())
    assert ("`tidying`", "every 10 s", "one in the fleet", "puts things where they belong") in cycle_docs.timetable()
    assert dict(cycle_docs.counts())["tidying"] == [("`things_moved`", "things that were moved")]
    now = datetime.now(UTC)
    idle: dict[str, Any] = dict.fromkeys(("workers", "due", "sources", "projects", "archive"), ())
    row = {
        "cycle": "tidying",
        "source": "",
        "quiet_s": 1.0,
        "paused_reason": "x",
        "paused_at": now,
        "paused_source": "",
    }
    problems = find_problems(Observed(now=now, cycles=[row], events_waiting=7, **idle), app.settings, cycles.facts)
    assert [str(each) for each in problems if each.code == "cycle_paused"] == [
        "tidying has been paused for 0.00 s (x), and 7 things lie about; `relevo resume tidying` switches it on"
    ]


def named_together(tree: ast.AST) -> Iterator[set[str]]:
    """Yield the cycles that a module names side by side: in a tuple, list or set, as keys, or as arguments."""
    for node in ast.walk(tree):
        match node:
            case ast.Tuple(elts=found) | ast.List(elts=found) | ast.Set(elts=found) | ast.Dict(keys=found):
                yield {each.value for each in found if isinstance(each, ast.Constant) and each.value in NAMES}
            case ast.ImportFrom(module="relevo.cycles", names=imported):
                yield {each.name for each in imported} & {*NAMES, "export"}


def lists_cycles(path: Path) -> bool:
    """Return whether a file names two cycles or more side by side."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return any(len(names) > 1 for names in named_together(ast.parse(text)))
    return any(
        len({*re.findall(r"'([\w-]+)'", statement)} & NAMES) > 1
        for statement in re.split(r"^-- name:", text, flags=re.M)
    )


def test_no_other_place_lists_the_cycles() -> None:
    """No module, script or statement outside `cycles/` names cycles side by side, but those with a reason."""
    ours = ROOT / "server" / "relevo" / "cycles"
    files = [
        *(path for path in (ROOT / "server" / "relevo").rglob("*.py") if not path.is_relative_to(ours)),
        *(path for path in (ROOT / "scripts").rglob("*.py")),
        *(ROOT / "sql").rglob("*.sql"),
    ]
    found = {path.relative_to(ROOT).as_posix() for path in files if lists_cycles(path)}
    assert {each for each in found if not TRIED_OUT.match(each)} == NAMED_FOR_A_REASON.keys()


def test_each_cycle_names_one_before_it() -> None:
    """The order of work begins with the reaper and ends with the nightly cycles; each cycle comes after the one it names."""
    facts = cycles.facts()
    order = list(facts)
    assert order[0] == "reaper"
    assert order[-1] == "archive-export"
    assert all(order.index(each.after) < order.index(each.name) for each in facts.values() if each.after)
    assert {each.feeds for each in facts.values()} <= {"", *facts}
