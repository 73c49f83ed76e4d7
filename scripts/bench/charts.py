"""Two SVG charts of one run, for light and dark pages: deliveries a second, and what a thousand cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from bench.measuring import Row

_BARS = {
    "dispatch": "Relevo, through HTTP",
    "ceiling": "the same without any guard",
    "graphile": "graphile-worker, no-op jobs",
    "pgqueuer": "pgqueuer, no-op jobs",
    "procrastinate": "procrastinate, no-op jobs",
    "plain_loop": "one request, one update each",
}
_OURS = 2  # of these stand first
_WIDTH, _LEFT, _RIGHT, _STEP, _BAR, _HEAD = 760, 218, 96, 30, 18, 44
_FONT = "font-family=\"system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif\""


@dataclass(frozen=True)
class Colours:
    """The colours of a chart."""

    page: str
    text: str
    faint: str
    ours: str
    worker: str
    postgres: str
    others: str


THEMES = {
    "light": Colours("#ffffff", "#1f2328", "#59636e", "#0969da", "#bf8700", "#336791", "#afb8c1"),
    "dark": Colours("#0d1117", "#e6edf3", "#9198a1", "#4493f8", "#d29922", "#6ea4d6", "#59636e"),
}


@dataclass(frozen=True)
class _Part:
    """A piece of a bar."""

    value: float
    colour: str


@dataclass(frozen=True)
class _Bar:
    label: str
    parts: tuple[_Part, ...]
    said: str

    @property
    def length(self) -> float:
        return sum(part.value for part in self.parts)


def write(folder: Path, rows: Sequence[Row]) -> list[Path]:
    """Write both charts; return where they lie."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for theme, colours in THEMES.items():
        path = folder / f"bench-{theme}.svg"
        path.write_text(draw(rows, colours), encoding="utf-8")
        written.append(path)
    return written


def draw(rows: Sequence[Row], colours: Colours) -> str:
    """Draw both panels, one above the other."""
    found = {row.name: row.figures for row in rows if row.cost}
    shown = [(name, label, found[name]) for name, label in _BARS.items() if name in found]
    shown = shown[:_OURS] + sorted(shown[_OURS:], key=lambda bar: -bar[2]["per_s"])
    rates = [
        _Bar(
            label,
            (_Part(of["per_s"], colours.ours if name == "dispatch" else colours.others),),
            f"{of['per_s']:,.0f}/s",
        )
        for name, label, of in shown
    ]
    costs = [
        _Bar(
            label,
            (_Part(of["worker_ms_per_1000"], colours.worker), _Part(of["postgres_ms_per_1000"], colours.postgres)),
            f"{of['cpu_ms_per_1000']:,.0f} ms",
        )
        for _, label, of in shown
        if not math.isnan(of["cpu_ms_per_1000"])
    ]
    panel = _HEAD + _STEP * len(shown)
    body = [*_panel(0, "Deliveries (or jobs) per second: longer is better", rates, colours)]
    body += _panel(panel, "CPU per 1,000: shorter is better", costs, colours)
    body += _legend(panel, {"worker": colours.worker, "PostgreSQL": colours.postgres}, colours)
    return "\n".join([*_frame(2 * panel + 12, colours), *body, "</svg>", ""])


def _frame(height: int, colours: Colours) -> Iterator[str]:
    box = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {box} {_FONT} role="img">'
    yield "<title>What Relevo does per second and what it costs, beside other queues</title>"
    yield f'<rect width="{_WIDTH}" height="{height}" fill="{colours.page}"/>'


def _panel(top: int, title: str, bars: Sequence[_Bar], colours: Colours) -> Iterator[str]:
    longest = max((bar.length for bar in bars), default=1.0)
    room = _WIDTH - _LEFT - _RIGHT
    yield _text(16, top + 26, title, colours.text, 'font-size="15" font-weight="600"')
    for n, bar in enumerate(bars):
        y = top + _HEAD + n * _STEP
        yield _text(_LEFT - 10, y + 13, bar.label, colours.text, 'font-size="13" text-anchor="end"')
        x = float(_LEFT)
        for part in bar.parts:
            width = max(1.0, part.value / longest * room)
            yield f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_BAR}" fill="{part.colour}"/>'
            x += width
        yield _text(x + 8, y + 13, bar.said, colours.faint, 'font-size="13"')


def _legend(top: int, names: dict[str, str], colours: Colours) -> Iterator[str]:
    for n, (name, colour) in enumerate(names.items()):
        x = _WIDTH - _RIGHT - 170 + n * 80
        yield f'<rect x="{x}" y="{top + 16}" width="11" height="11" rx="2" fill="{colour}"/>'
        yield _text(x + 17, top + 26, name, colours.faint, 'font-size="13"')


def _text(x: float, y: float, words: str, colour: str, how: str) -> str:
    return f'<text x="{x:.1f}" y="{y}" fill="{colour}" {how}>{escape(words)}</text>'
