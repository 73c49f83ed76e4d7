"""`make bench` measures, says so in a table, in JSON and in charts, and writes them into the README."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from bench import charts, measuring, report, sizes
from bench.__main__ import main
from bench.measuring import Cost, Goal, Row
from bench.pages import PAGES
from bench.strangers import ATTACKS
from relevo.core import known_services
from support import soak

ROOT = Path(__file__).resolve().parents[3]

NATIVE: tuple[str, ...] = soak.cases((), whole=known_services.NATIVE)
OF_INBOXES: set[str] = soak.cases(
    set(), whole={"inbox_page", "inbox_unread_page", "inbox_counts", "inbox_counts_read", "inbox_waiters"}
)
SCALE: tuple[str, ...] = soak.cases((), whole=("scale",))
OTHERS: tuple[str, ...] = soak.cases((), whole=("reaper", "words"))
HOSTILE: tuple[str, ...] = soak.cases((), whole=("hostile",))
NEIGHBOURS: tuple[str, ...] = soak.cases((), whole=("neighbours",))
FEW = (
    *("dispatch", "receipts", "enqueue", "growth", *OTHERS, *NATIVE, *SCALE, *HOSTILE, *NEIGHBOURS),
    *(["inbox"] if OF_INBOXES else []),
)
"""What is measured here; the rows that `make soak` adds are measured alike, each with a PostgreSQL of its own."""
DISPATCH = measuring.rate(
    "dispatch",
    "dispatch",
    Cost(1_000, 0.5, 40.0, 25.0, 300_000),
    Goal("cpu_ms_per_1000", 70),
    Goal("per_s", 9e9, at_least=True),
)
LOOP = measuring.rate("plain_loop", "a <plain> loop", Cost(10, 0.1, float("nan"), 5.0, 10_000))
WAITS = measuring.latency("wakeup", "commit to POST", [1.0, 2.0, 30.0])


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the bench as the Makefile does."""
    environ = os.environ | {"PYTHONPATH": str(ROOT / "scripts")}
    command = [sys.executable, "-m", "bench", *words]
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False, timeout=600)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A quick run of a few rows: what it printed, and the folder it wrote to."""
    folder = tmp_path_factory.mktemp("bench")
    done = run("--quick", "--only", ",".join(FEW), "--into", str(folder))
    assert done.returncode == 0, done.stderr
    return done.stdout, folder


def test_a_quick_run_measures_every_row_asked_for(measured: tuple[str, Path]) -> None:
    """The JSON has the rows with rate, CPU by worker and by PostgreSQL, and WAL; each is more than nothing."""
    written = json.loads((measured[1] / "bench.json").read_text())
    every = {row["name"]: row["figures"] for row in written["rows"]}
    rows = {
        name: figures
        for name, figures in every.items()
        if not name.startswith(("growth", "inbox", "scale", "hostile", "neighbours"))
    }
    assert set(rows) == {
        "dispatch",
        "ceiling",
        "plain_loop",
        "receipts",
        "enqueue",
        "enqueue_many",
        *OTHERS,
        *(["zoned"] if OTHERS else []),
        *NATIVE,
    }
    for name, figures in rows.items():
        for figure in ("per_s", "worker_ms_per_1000", "wal_bytes_each"):
            assert figures[figure] > 0, (name, figure)
    assert len([name for name in every if name.startswith("growth")]) >= 12
    assert {name for name in every if name.startswith("inbox")} == OF_INBOXES
    beside = [figures["ratio"] for name, figures in every.items() if name.startswith("scale")]
    assert len(beside) >= 25 * len(SCALE)
    assert all(beside)
    assert all(every[name]["postgres_ms"] > 0 for name in OF_INBOXES - {"inbox_waiters"})
    assert sum(name.startswith("hostile") for name in every) == len(ATTACKS) * len(HOSTILE)
    assert sum(name.startswith("neighbours") for name in every) == 4 * len(NEIGHBOURS)
    assert written["sizes"]["phones"] == sizes.QUICK.phones
    assert {goal["figure"] for goal in written["rows"][0]["goals"]} >= {"times_a_plain_loop", "of_the_ceiling"}


def test_a_quick_run_prints_the_table_and_draws(measured: tuple[str, Path]) -> None:
    """Each row is a line of the table, and both charts are SVG that a browser can read."""
    printed, folder = measured
    assert re.search(r"as tables grow +100 +1,000 +exponent", printed)
    for what in ("dispatch, every guarantee on", "the unguarded ceiling", "enqueue_many", "receipts"):
        assert what in printed
    for theme in charts.THEMES:
        assert ET.parse(folder / f"bench-{theme}.svg").getroot().tag.endswith("svg")


@pytest.mark.needs("chromium-headless-shell")
def test_pages_are_looked_at_with_a_browser(tmp_path: Path) -> None:
    """Asked for by name, the first kinds of pages are opened, and the slowest is judged."""
    done = run("--quick", "--only", "pages", "--set", "pages=2", "--set", "deliveries=500", "--into", str(tmp_path))
    assert done.returncode == 0, done.stderr
    [row] = json.loads((tmp_path / "bench.json").read_text())["rows"]
    assert {f"ms: {page}" for page in [*PAGES][:2]} <= set(row["figures"])
    assert [goal["asked"] for goal in row["goals"]] == ["≤ 500 ms"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--only", "dispatch,speed"), "speed"),
        (("--set", "fones=3"), "fones=3"),
        (("--set", "phones=none"), "phones=none"),
        (("--quick", "--write-readme"), "--write-readme"),
    ],
)
def test_a_wrong_wish_is_refused_by_its_name(
    words: tuple[str, ...], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is not known is named, together with what is, before anything is started."""
    with pytest.raises(SystemExit) as refused:
        main(words)
    told = capsys.readouterr().err.splitlines()[-1]
    assert refused.value.code == 2
    assert named in told
    assert "reaper" in told or "rounds" in told or "whole run" in told


def test_a_size_can_be_set() -> None:
    """--set changes that size and no other."""
    assert sizes.changed(sizes.QUICK, ["phones=7"]).phones == 7
    assert sizes.changed(sizes.QUICK, ["phones=7"]).rated == sizes.QUICK.rated


def test_a_goal_that_is_missed_says_so() -> None:
    """The table tells a goal that is met from one that is not."""
    assert [str(goal) for goal in DISPATCH.missed] == ["≥ 9e+09"]
    assert report.cells(DISPATCH)[-1] == "≤ 70, ≥ 9e+09 (missed)"


def test_what_was_not_measured_is_left_blank() -> None:
    """A cost that nobody could count is blank in the table, null in the JSON, and no bar."""
    assert report.cells(LOOP)[2] == ""
    written: dict[str, Any] = json.loads(report.as_json([LOOP], sizes.QUICK, 1.0))
    assert written["rows"][0]["figures"]["worker_ms_per_1000"] is None
    assert "ms</text>" not in charts.draw([LOOP], charts.THEMES["light"])


def test_pages_get_tables_and_charts(tmp_path: Path) -> None:
    """What stands between the markers is replaced, as often as one likes; the rest stays as it was."""
    readme, page = tmp_path / "README.md", tmp_path / "scaling.md"
    for each in (readme, page):
        each.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    for rows in ([DISPATCH, LOOP], [WAITS]):
        report.write_picture(readme)
        report.write_tables(page, rows)
    for each in (readme, page):
        text = each.read_text()
        assert text.startswith("before\n")
        assert text.endswith("\nafter\n")
        assert "old" not in text
    assert "a <plain> loop" not in page.read_text()
    assert "| commit to POST | p50 2.0 ms, p99 30.0 ms |" in page.read_text()
    assert "server/docs/bench-dark.svg" in readme.read_text()


def test_a_page_without_markers_is_refused(tmp_path: Path) -> None:
    """A page that has no place for the tables stays as it is."""
    page = tmp_path / "scaling.md"
    page.write_text("nothing")
    with pytest.raises(ValueError, match="must hold the lines"):
        report.write_tables(page, [Row("a", "b", "c")])
    assert page.read_text() == "nothing"


def test_words_of_a_row_cannot_break_a_chart() -> None:
    """Charts of any rows are well-formed, also of none."""
    for rows in ([], [DISPATCH, LOOP, WAITS]):
        for colours in charts.THEMES.values():
            ET.fromstring(charts.draw(rows, colours))
