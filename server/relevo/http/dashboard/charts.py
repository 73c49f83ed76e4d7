"""Charts, drawn here as SVG without a word inside: words stand around them, where they stay readable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relevo.http.dashboard.html import Markup, el
from relevo.http.dashboard.language import t
from relevo.http.dashboard.words import count, duration, number

_WIDTH, _HEIGHT = 600.0, 120.0
_SERIES = ("sent", "confirmed", "failed")
_SPARK_W, _SPARK_H = 96.0, 24.0


def pushes(rows: Sequence[dict[str, Any]], *, title: str, first: str, per: float) -> Markup:
    """Draw what was sent, confirmed and failed per minute; `per` is how many minutes a row stands for."""
    top = max((row[name] for row in rows for name in _SERIES), default=0) / per
    totals = {name: sum(row[name] for row in rows) for name in _SERIES}
    said = ", ".join(f"{number(totals[name])} {t(name)}" for name in _SERIES)
    drawn = [_area(rows, "sent", top * per), *(_line(rows, name, top * per) for name in _SERIES)]
    most = t("at most {n} a minute", n=number(top))
    if per > 1:
        most = t("at most {n} in {minutes} min", n=number(top * per), minutes=number(per))
    picture = el(
        "svg",
        _grid(),
        drawn,
        viewBox=f"0 0 {_WIDTH:.0f} {_HEIGHT:.0f}",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"{title}: {said}; {most}",
        class_="chart",
    )
    legend = el("p", [el("span", f"{t(name)} {number(totals[name])}", class_=f"key {name}") for name in _SERIES])
    ends = el("p", el("span", first), el("span", most), el("span", t("now")), class_="ends")
    return el("figure", el("figcaption", el("h3", title), legend), picture, ends)


def _grid() -> list[Markup]:
    return [
        el("line", x1="0", x2=f"{_WIDTH:.0f}", y1=f"{y:.1f}", y2=f"{y:.1f}", class_="grid")
        for y in (1.0, _HEIGHT / 2, _HEIGHT - 1)
    ]


def _points(rows: Sequence[dict[str, Any]], name: str, top: float) -> list[str]:
    step = _WIDTH / max(1, len(rows) - 1)
    return [
        f"{index * step:.1f},{_HEIGHT - 1 - (_HEIGHT - 4) * row[name] / (top or 1):.1f}"
        for index, row in enumerate(rows)
    ]


def _line(rows: Sequence[dict[str, Any]], name: str, top: float) -> Markup | None:
    if not any(row[name] for row in rows):
        return None
    return el("polyline", points=" ".join(_points(rows, name, top)), class_=f"line {name}")


def _area(rows: Sequence[dict[str, Any]], name: str, top: float) -> Markup | None:
    if not any(row[name] for row in rows):
        return None
    corners = [f"0,{_HEIGHT - 1:.0f}", *_points(rows, name, top), f"{_WIDTH:.0f},{_HEIGHT - 1:.0f}"]
    return el("polygon", points=" ".join(corners), class_=f"area {name}")


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
