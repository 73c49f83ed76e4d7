"""Just enough of PromQL to look at our own queries: what they name, and what threshold expressions say of a scrape."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any, NamedTuple

import promql_parser as pp

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
            wanted = {each.name: each.value for each in node.matchers.matchers}
            return [(labels, value) for labels, value in samples[node.name] if wanted.items() <= labels.items()]
        case pp.AggregateExpr():
            return _aggregated(node, _vector(node.expr, samples))
        case pp.BinaryExpr():
            holds = _COMPARE[str(node.op)]
            limit = node.rhs.val
            return [(labels, value) for labels, value in _vector(node.lhs, samples) if holds(value, limit)]
        case _:
            raise TypeError(f"teach this check what {type(node).__name__} means")


def _aggregated(node: Any, inside: Vector) -> Vector:
    by = list(node.modifier.labels) if node.modifier else []
    groups: dict[tuple[str, ...], list[float]] = {}
    for labels, value in inside:
        groups.setdefault(tuple(labels.get(each, "") for each in by), []).append(value)
    return [
        (dict(zip(by, key, strict=True)), float(_AGGREGATE[str(node.op)](values))) for key, values in groups.items()
    ]
