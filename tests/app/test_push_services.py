"""What each push service is given of the settings: every setting where it belongs, and no other's value."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from relevo import config
from relevo.app import push_services
from relevo.providers.push_projects import PushProjects


def test_expo_is_made_as_the_settings_say(tmp_path: Path) -> None:
    """Its address, times, and how many messages and receipts a request may hold are each from their own setting."""
    given = {
        "EXPO_BASE_URL": "http://127.0.0.1:9/expo",
        "PUSH_REQUEST_TIMEOUT_MS": "8000",
        "PUSH_CONNECT_TIMEOUT_MS": "3000",
        "PUSH_CHUNK_SIZE": "70",
        "RECEIPT_CHUNK_SIZE": "210",
    }
    with closing(push_services._expo(config.load(given, None), PushProjects(None))) as made:
        assert (made.max_messages, made.max_receipts, made._total_s, made._connect_s) == (70, 210, 8.0, 3.0)
        assert "127.0.0.1:9" in str(made._host)
