"""The sandbox that a folder's processes share."""

from __future__ import annotations

from pathlib import Path

import pytest

from relevo.sandbox import embedded


def test_the_second_process_finds_the_first_ones_whatever_proxy_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy of the environment does not stand between two processes of one machine; the last one takes it along."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with embedded.acquire(tmp_path) as first, embedded.acquire(tmp_path) as second:
        assert first == second
        assert first.settings["FCM_BASE_URL"].startswith("https://127.0.0.1:")
    assert not (tmp_path / "sandbox").exists()
