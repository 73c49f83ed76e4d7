"""Charts, drawn here as SVG without a word inside: words stand around them, where they stay readable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relevo.http.dashboard.formats import count, duration, number
from relevo.http.dashboard.html import Markup, el
from relevo.http.dashboard.language import t

_WIDTH, _HEIGHT = 600.0, 120.0
_SERIES = ("sent", "confirmed", "failed")
_FILLED, _LEAST = 0.8, 2.0
_SPARK_W, _SPARK_H = 96.0, 24.0


def pushes(rows: Sequence[dict[str, Any]], *, title: str, ends: Sequence[str]) -> Markup:
    """Draw what was sent, confirmed and failed, side by side for each stretch of time; `ends` stand below, evenly."""
    top = _round_up(max((row[name] for row in rows for name in _SERIES), default=0))
    totals = {name: sum(row[name] for row in rows) for name in _SERIES}
    told = ", ".join(f"{number(totals[name])} {t(name)}" for name in _SERIES)
    picture = el(
        "svg",
        _grid(),
        [_group(row, place, len(rows), top) for place, row in enumerate(rows)],
        viewBox=f"0 0 {_WIDTH:.0f} {_HEIGHT:.0f}",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"{title}: {told}; {t('at most {n} at a time', n=number(top))}",
        class_="chart",
    )
    legend = el("p", [el("span", f"{t(name)} {number(totals[name])}", class_=f"key {name}") for name in _SERIES])
    left = el("div", [el("span", number(each)) for each in (top, top / 2, 0)], class_="left")
    below = el("p", [el("span", each) for each in ends], class_="ends")
    return el("figure", el("figcaption", el("h3", title), legend), el("div", left, picture, below, class_="axes"))


def _round_up(most: float) -> int:
    """Return the next round number, an even one, for the top of an axis."""
    step: int = 10 ** (len(str(int(most))) - 1)
    return next(top for top in range(2 * step, 11 * step, 2 * step) if top >= most)


def _grid() -> list[Markup]:
    return [
        el("line", x1="0", x2=f"{_WIDTH:.0f}", y1=f"{y:.1f}", y2=f"{y:.1f}", class_="grid")
        for y in (1.0, _HEIGHT / 2, _HEIGHT - 1)
    ]


def _group(row: dict[str, Any], place: int, groups: int, top: int) -> Markup | None:
    """Draw one stretch of time as bars beside each other; what is not nothing is to be seen."""
    if not any(row[name] for name in _SERIES):
        return None
    wide = _WIDTH / groups
    bar = wide * _FILLED / len(_SERIES)
    bars = []
    for at, name in enumerate(_SERIES):
        high = max(_LEAST, (_HEIGHT - 2) * row[name] / top) if row[name] else 0.0
        box = {"x": f"{place * wide + wide * (1 - _FILLED) / 2 + at * bar:.1f}", "y": f"{_HEIGHT - 1 - high:.1f}"}
        bars.append(el("rect", width=f"{bar * 0.9:.1f}", height=f"{high:.1f}", class_=f"column {name}", **box))
    told = ", ".join(f"{number(row[name])} {t(name)}" for name in _SERIES)
    return el("g", el("title", f"{row['at']:%H:%M} UTC: {told}"), bars)


def spark(runs: Sequence[dict[str, Any]]) -> Markup | None:
    """Draw how long runs took, one bar each; those that failed stand out."""
    if not runs:
        return None
    top = max(run["seconds"] for run in runs) or 1.0
    wide = _SPARK_W / max(12, len(runs))
    bars = []
    for index, run in enumerate(runs):
        high = max(2.0, _SPARK_H * run["seconds"] / top)
        bad = "bar bad" if run["outcome"] in ("failed", "abandoned") else "bar"
        place = {"x": f"{index * wide:.1f}", "y": f"{_SPARK_H - high:.1f}", "width": f"{wide * 0.75:.1f}"}
        bars.append(el("rect", height=f"{high:.1f}", class_=bad, **place))
    said = t("the last {runs} took at most {time}", runs=count(len(runs), "run"), time=duration(top))
    box = f"0 0 {_SPARK_W:.0f} {_SPARK_H:.0f}"
    return el("svg", el("title", said), bars, viewBox=box, role="img", aria_label=said, class_="spark")
