"""The modules that decide, in Python, with the mistakes that cosmic-ray makes in them: `make soak` asks for a share."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import Any

from mutants.mistake import ROOT, Mistake

_DELIVERY, _PROVIDERS = "server/relevo/delivery/", "server/relevo/providers/"
MODULES: dict[str, tuple[str, ...]] = {
    _DELIVERY + "settling/outcomes.py": (
        "tests/delivery/settling/test_replies.py",
        "tests/scenarios/push_errors/test_error_tables.py",
    ),
    _DELIVERY + "settling/replies.py": (
        "tests/delivery/settling/test_replies.py",
        "tests/operators/test_doctor_credentials.py",
    ),
    _DELIVERY + "projects/rate_and_breaker.py": ("tests/delivery/projects/test_rate_and_breaker.py",),
    _PROVIDERS + "fcm/provider.py": ("tests/providers/test_fcm.py",),
    "server/relevo/http/guard.py": ("tests/http/test_rules.py", "tests/http/test_rules_principles.py"),
    "server/relevo/access/phones.py": (
        "tests/http/test_installations.py",
        "tests/http/test_installations_signatures.py",
    ),
    "server/relevo/client/signatures.py": ("tests/http/test_installations_signatures.py",),
    "server/relevo/core/wordings.py": ("tests/core/test_wordings.py", "tests/core/test_patterns.py"),
    "server/relevo/sources/merging.py": ("tests/sources/test_merging.py",),
}
"""Each with the tests that must notice what is wrong with it."""
_OPERATORS = re.compile(
    r"core/(AddNot|Replace(TrueWithFalse|FalseWithTrue|AndWithOr|OrWithAnd|BreakWithContinue|UnaryOperator_Delete_Not"
    r"|ComparisonOperator_(Eq_NotEq|NotEq_Eq|Lt_LtE|LtE_Lt|Gt_GtE|GtE_Gt|Is_IsNot|IsNot_Is|In_NotIn|NotIn_In))"
    r"|ZeroIterationForLoop)"
)
"""Names whose change alters a decision; others change lengths of texts and kinds of numbers."""


@dataclass(frozen=True)
class Mutated(Mistake):
    """A whole module as cosmic-ray changed it."""

    def put_in(self, folder: Path) -> None:
        """Write the module as it was changed."""
        (folder / self.file).write_text(self.instead, encoding="utf-8")

    def changed_lines(self) -> str:
        """Return which lines were changed, as a difference."""
        lines = unified_diff(self.text.splitlines(), self.instead.splitlines(), lineterm="", n=0)
        return "\n".join(list(lines)[2:])


def mutations(module: str, most: int, chance: random.Random) -> list[Mutated]:
    """Return some mistakes in a module, chosen by chance, each with what it changes."""
    source = (ROOT / module).read_text(encoding="utf-8")
    found = list(_all(source))
    chosen = chance.sample(found, min(most, len(found)))
    return [Mutated(operator, module, source, changed, MODULES[module]) for operator, changed in chosen]


def _all(source: str) -> Iterator[tuple[str, str]]:
    from cosmic_ray import plugins  # noqa: PLC0415 # an optional part
    from cosmic_ray.mutating import mutate_code  # noqa: PLC0415

    for name in filter(_OPERATORS.fullmatch, plugins.operator_names()):
        yield from _of_operator(source, name, plugins.get_operator(name)(), mutate_code)


def _of_operator(source: str, name: str, operator: Any, mutate_code: Any) -> Iterator[tuple[str, str]]:
    place = 0
    while (changed := mutate_code(source, operator, place)) is not None:
        if changed != source:
            yield f"{name} at {place}", changed
        place += 1
