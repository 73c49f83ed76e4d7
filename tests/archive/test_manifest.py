"""Manifests of archived months: read only if they hold together."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relevo.archive import manifest
from relevo.core.errors import ArchiveError

KEY = "notification_deliveries/year=2025/month=03/_manifest.json"
KEPT = Path(__file__).parent / "kept" / "v1" / "relevo" / KEY


def _gap(parts: list[dict[str, Any]]) -> None:
    parts[1]["first_key"] = [*parts[1]["first_key"][:-1], "0"]


def _late_start(parts: list[dict[str, Any]]) -> None:
    parts[0]["first_key"] = parts[0]["last_key"]


def _short_key(parts: list[dict[str, Any]]) -> None:
    parts[1]["last_key"] = parts[1]["last_key"][:1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_gap, "part-00002.parquet does not follow"),
        (_late_start, "part-00001.parquet does not follow"),
        (list.reverse, "part-00002.parquet does not follow"),
        (list.pop, "its parts do not add up"),
        (_short_key, "part-00002.parquet has no key for its last row"),
    ],
    ids=["a gap", "a late start", "another order", "one part less", "a short key"],
)
def test_parts_follow_each_other(change: Callable[[list[dict[str, Any]]], object], said: str) -> None:
    """A month of two parts is restored only if each begins where the one before it ends, so that no row is left out."""
    document = json.loads(KEPT.read_text(encoding="utf-8"))
    assert len(manifest.parse(json.dumps(document), KEY).parts) == 2
    change(document["parts"])
    with pytest.raises(ArchiveError, match=said):
        manifest.parse(json.dumps(document), KEY)
