"""Without Node.js the kits are not tested: that is a failure where everything is asked for, and said loudly elsewhere."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from _pytest.terminal import TerminalReporter

ROOT = Path(__file__).parents[1] / "conftest.py"


@pytest.mark.parametrize("required", [True, False])
def test_kits_without_node(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, required: bool
) -> None:
    """Their tests are run, to fail, under RELEVO_TEST_REQUIRE_ALL=1; else they are named at the end, with the reason."""
    ours: Any = request.config.pluginmanager.get_plugin(str(ROOT))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(ours, "REQUIRE_ALL", required)
    monkeypatch.setattr(ours, "_left_out", {})
    monkeypatch.setattr(ours, "_write_times", lambda _: None)
    request.node.add_marker(pytest.mark.needs("kits"))
    items = [request.node]
    silent = SimpleNamespace(hook=SimpleNamespace(pytest_deselected=lambda items: items))
    ours.pytest_collection_modifyitems(silent, items)
    assert len(items) == (1 if required else 0)
    written = io.StringIO()
    ours.pytest_terminal_summary(TerminalReporter(request.config, written))
    said = "1 test, for want of kits: set RELEVO_TEST_KITS=1"
    assert [part in written.getvalue() for part in ("LEFT OUT", said)] == [not required] * 2
