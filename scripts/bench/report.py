"""The output of a run: the table for the eye, the same for the docs, and the JSON for machines."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import scale
from bench.growth import AT, GROWTH
from bench.measuring import Row
from bench.sizes import Sizes

HEADS = ("what", "measured", "worker", "PostgreSQL", "WAL", "goal")
UNITS = (
    "Worker and PostgreSQL: milliseconds of CPU per 1,000; WAL: bytes each. The sandbox that answers is not counted."
)
GROWN = "Microseconds of PostgreSQL's CPU while its tables hold so many rows, and the exponent fitted to them."
BESIDE = "Milliseconds of the worker's CPU + PostgreSQL's (by the clock); of a page or a look each, else of 1,000."
BEGIN, END = "<!-- bench: written by make bench ARGS=--write-readme -->", "<!-- /bench -->"
_WIDTH = 180  # where nobody says how wide a line may be
_PICTURE = """<picture>
  <source media="(prefers-color-scheme: dark)" srcset="server/docs/bench-dark.svg">
  <img alt="Deliveries per second and CPU per 1,000, beside other queues" src="server/docs/bench-light.svg">
</picture>"""


Cells = tuple[str, ...]


def tables(rows: Sequence[Row]) -> Iterator[tuple[Cells, list[Cells], str]]:
    """Return heads, lines and a last sentence of each table: what things cost, and how that grows."""
    grown = [row for row in rows if row.name.startswith(GROWTH)]
    beside = [row for row in rows if row.name.startswith(scale.SCALE)]
    plain = [cells(row) for row in rows if row not in grown and row not in beside]
    if plain:
        yield HEADS, plain, UNITS
    if grown:
        sizes = [name.removeprefix(AT) for name in grown[0].figures if name.startswith(AT)]
        heads = "as tables grow", *(f"{int(size):,}" for size in sizes), "exponent", "goal"
        yield heads, [_grown(row, sizes) for row in grown], GROWN
    if beside:
        hot = [name.removeprefix(scale.AT) for name in beside[0].figures if name.startswith(scale.AT)]
        heads = "beside so many deliveries", *(f"{int(each):,}" for each in hot), "CPU"
        yield heads, [_beside(row, hot) for row in beside], BESIDE


def cells(row: Row) -> Cells:
    """Return a row as the table shows it; a goal that was missed says so."""
    figures = row.figures
    costs = (figures.get(name, math.nan) for name in ("worker_ms_per_1000", "postgres_ms_per_1000", "wal_bytes_each"))
    worker, postgres, wal = costs
    return row.what, row.said, _number(worker, ".1f"), _number(postgres, ".1f"), _number(wal, ",.0f"), _asked(row)


def _grown(row: Row, sizes: Sequence[str]) -> Cells:
    costs = (f"{row.figures[AT + size]:,.1f}" for size in sizes)
    return row.what, *costs, f"{row.figures['exponent']:+.3f}", _asked(row)


def _beside(row: Row, hot: Sequence[str]) -> Cells:
    spent = (
        scale.Spent(*(row.figures[f"{kind}_ms_at_{each}"] for kind in ("worker", "postgres", "elapsed")))
        for each in hot
    )
    return row.what, *map(str, spent), f"{row.figures['ratio']:.2f} x"


def _asked(row: Row) -> str:
    return ", ".join(f"{goal}{' (missed)' if goal in row.missed else ''}" for goal in row.goals)


def _number(value: float, form: str) -> str:
    return "" if math.isnan(value) else format(value, form)


def show(rows: Sequence[Row]) -> None:
    """Print the table."""
    console = Console(highlight=False)
    console = console if console.is_terminal else Console(highlight=False, width=_WIDTH)
    for heads, lines, sentence in tables(rows):
        table = Table(*heads, box=None, pad_edge=False)
        for line in lines:
            table.add_row(*line)
        console.print(table)
        console.print(sentence + "\n", style="dim")


def as_json(rows: Sequence[Row], sizes: Sizes, seconds: float) -> str:
    """Return everything that was measured, on what, and whether it meets its goals."""
    return json.dumps(
        {
            "taken_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(seconds, 1),
            "machine": machine(),
            "sizes": asdict(sizes),
            "rows": [_plain(row) for row in rows],
        },
        indent=2,
        ensure_ascii=False,
    )


def machine() -> dict[str, str | int | None]:
    """Return what the figures depend on."""
    return {"cores": os.cpu_count(), "processor": _processor(), "python": platform.python_version()}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())


def _plain(row: Row) -> dict[str, Any]:
    figures = {name: None if math.isnan(value) else round(value, 4) for name, value in row.figures.items()}
    goals = [{"figure": g.figure, "asked": str(g), "met": g not in row.missed} for g in row.goals]
    return {"name": row.name, "what": row.what, "measured": row.said, "figures": figures, "goals": goals}


def write_picture(readme: Path) -> None:
    """Put the charts between a page's markers."""
    _put_between(readme, _PICTURE)


def write_tables(page: Path, rows: Sequence[Row]) -> None:
    """Put the tables between a page's markers."""
    _put_between(page, "\n".join(_markdown(rows)))


def _put_between(page: Path, body: str) -> None:
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} must hold the lines {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n\n{body}\n\n{END}{after}", encoding="utf-8")


def _markdown(rows: Sequence[Row]) -> Iterator[str]:
    for heads, lines, sentence in tables(rows):
        yield f"| {' | '.join(heads)} |"
        yield f"|{'---|' * len(heads)}"
        yield from (f"| {' | '.join(line)} |" for line in lines)
        yield f"\n{sentence}\n"
    on = machine()
    yield f"Taken in one run on {on['cores']} cores ({on['processor']}), Python {on['python']}."
