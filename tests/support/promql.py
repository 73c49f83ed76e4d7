"""Just enough of PromQL to look at our own queries: what they name, and what threshold expressions say of a scrape."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any, NamedTuple

import promql_parser as pp
from prometheus_client.parser import text_string_to_metric_families

Labels = dict[str, str]
Vector = list[tuple[Labels, float]]
_COMPARE = {
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
}
_AGGREGATE = {"max": max, "min": min, "sum": sum, "count": len}


class Named(NamedTuple):
    """A metric that a query selects, and the labels it is told apart or added up by."""

    metric: str
    labels: frozenset[str]


def named(query: str) -> list[Named]:
    """Return what a query names; one that is no PromQL raises ValueError."""
    return list(_named(pp.parse(query), frozenset()))


def _named(node: Any, by: frozenset[str]) -> Iterator[Named]:
    match node:
        case pp.VectorSelector():
            yield Named(node.name, by | {each.name for each in node.matchers.matchers})
        case pp.MatrixSelector():
            yield from _named(node.vector_selector, by)
        case pp.AggregateExpr():
            yield from _named(node.expr, by | set(node.modifier.labels if node.modifier else ()))
        case pp.Call():
            for each in node.args:
                yield from _named(each, by)
        case pp.BinaryExpr():
            yield from _named(node.lhs, by)
            yield from _named(node.rhs, by)
        case pp.ParenExpr():
            yield from _named(node.expr, by)
        case pp.NumberLiteral() | pp.StringLiteral():
            pass
        case _:
            raise TypeError(f"teach this check what {type(node).__name__} means")


def evaluate(query: str, samples: dict[str, Vector]) -> Vector:
    """Return what a threshold expression says of samples at one instant: nothing if it does not hold."""
    return _vector(pp.parse(query), samples)


def _vector(node: Any, samples: dict[str, Vector]) -> Vector:
    match node:
        case pp.VectorSelector():
            return [(labels, value) for labels, value in samples[node.name] if _is_selected(node, labels)]
        case pp.AggregateExpr():
            return _aggregated(node, _vector(node.expr, samples))
        case pp.MatrixSelector():
            return _vector(node.vector_selector, samples)
        case pp.Call():
            inside = _vector(node.args[0], samples)  # of `rate`: counters began with the scrape
            absent = [] if inside else [({}, 1.0)]
            return absent if node.func.name == "absent" else inside
        case pp.BinaryExpr():
            return _operated(node, _vector(node.lhs, samples), samples)
        case _:
            raise TypeError(f"teach this check what {type(node).__name__} means")


def _operated(node: Any, left: Vector, samples: dict[str, Vector]) -> Vector:
    """Return what a comparison with a number leaves, or the quotients of two sides."""
    if str(node.op) != "/":
        return [(labels, value) for labels, value in left if _COMPARE[str(node.op)](value, node.rhs.val)]
    below = {str(sorted(labels.items())): value for labels, value in _vector(node.rhs, samples) if value}
    both = [(labels, value, below.get(str(sorted(labels.items())))) for labels, value in left]
    return [(labels, value / by) for labels, value, by in both if by is not None]


def _is_selected(node: Any, labels: Labels) -> bool:
    return all(
        (labels.get(each.name, "") != each.value)
        if str(each.op).endswith("NotEqual")
        else labels.get(each.name) == each.value
        for each in node.matchers.matchers
    )


def check_matching(query: str, samples: dict[str, Vector]) -> Vector:
    """Return the series a query answers with; two series of one side that match alike raise, as in Prometheus."""
    return _series(pp.parse(query), samples)


def _series(node: Any, samples: dict[str, Vector]) -> Vector:
    match node:
        case pp.VectorSelector():
            wanted = {each.name: each.value for each in node.matchers.matchers}
            return [(labels, value) for labels, value in samples[node.name] if wanted.items() <= labels.items()]
        case pp.MatrixSelector():
            return _series(node.vector_selector, samples)
        case pp.ParenExpr():
            return _series(node.expr, samples)
        case pp.AggregateExpr():
            return _aggregated(node, _series(node.expr, samples))
        case pp.Call():
            dropped = {"le"} if node.func.name == "histogram_quantile" else set()
            inside = _series(node.args[-1], samples)
            return _once(
                [({name: of[name] for name in of if name not in dropped}, value) for of, value in inside],
                joined=bool(dropped),
            )
        case pp.BinaryExpr():
            return _joined(node, samples)
        case _:
            raise TypeError(f"teach this check what {type(node).__name__} means")


def _joined(node: Any, samples: dict[str, Vector]) -> Vector:
    sides = [_series(side, samples) for side in (node.lhs, node.rhs) if not isinstance(side, pp.NumberLiteral)]
    if len(sides) == 1:
        return sides[0]
    on = node.modifier.matching if node.modifier else None
    keys = [[_key(labels, on) for labels, _ in side] for side in sides]
    for of in keys:
        if len(set(map(str, of))) < len(of):
            raise ValueError(f"many-to-many matching: {of}")
    return [(labels, value) for labels, value in sides[0] if _key(labels, on) in keys[1]]


def _key(labels: Labels, on: Any) -> Labels:
    if on is None:
        return labels
    named_there = set(on.labels)
    keep = named_there if str(on.type).endswith("Include") else set(labels) - named_there
    return {name: value for name, value in labels.items() if name in keep}


def _once(vector: Vector, *, joined: bool) -> Vector:
    return (
        list({str(sorted(labels.items())): (labels, value) for labels, value in vector}.values()) if joined else vector
    )


def _aggregated(node: Any, inside: Vector) -> Vector:
    by = list(node.modifier.labels) if node.modifier else []
    groups: dict[tuple[str, ...], list[float]] = {}
    for labels, value in inside:
        groups.setdefault(tuple(labels.get(each, "") for each in by), []).append(value)
    return [
        (dict(zip(by, key, strict=True)), float(_AGGREGATE[str(node.op)](values))) for key, values in groups.items()
    ]


def samples_of(text: str) -> dict[str, Vector]:
    """Return a scrape's samples by their names; a family that is told without any has none."""
    found: dict[str, Vector] = {"up": [({"job": "relevo"}, 1.0)]}
    for family in text_string_to_metric_families(text):
        ends = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum")}.get(family.type, ("",))
        found |= {f"{family.name}{end}": [] for end in ends}
        for sample in family.samples:
            found.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return found
