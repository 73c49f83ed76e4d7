"""Expo's own SDK for Node, pointed at the sandbox, behaves as against Expo."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relevo.sandbox import Sandbox

pytestmark = pytest.mark.needs("npm-packages")
PROGRAM = Path(__file__).parent / "node" / "sdk.mjs"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """A sandbox with enhanced security and receipts at once."""
    with Sandbox(rate_per_s=0, receipt_delay_s=0, access_token="s3cret") as running:
        yield running


@pytest.fixture(scope="module")
def seen(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the SDK saw, installed by its name into a folder of the session."""
    folder = tmp_path_factory.mktemp("node")
    install = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", str(folder)]
    subprocess.run([*install, "expo-server-sdk"], cwd=folder, check=True, capture_output=True, timeout=300)
    shutil.copy(PROGRAM, folder)
    env = {**os.environ, "EXPO_BASE_URL": sandbox.url, "SANDBOX_ACCESS_TOKEN": "s3cret"}
    command = ["node", PROGRAM.name]
    ran = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    return dict(json.loads(ran.stdout))


def test_chunks_and_tickets(seen: dict[str, Any], sandbox: Sandbox) -> None:
    """250 messages go out in chunks of 100, packed, and every phone gets its own."""
    assert seen["chunks"] == [100, 100, 50]
    assert [ticket["status"] for ticket in seen["tickets"]] == ["ok"] * 250
    assert len({ticket["id"] for ticket in seen["tickets"]}) == 250
    assert sandbox.received("ExponentPushToken[node-249]")[0]["title"] == "Message 249"


def test_token_shapes(seen: dict[str, Any]) -> None:
    """The SDK takes tokens with fault words, and ticket ids, for what they look like."""
    assert seen["tokens"] == [True, True, True]


def test_error_tickets(seen: dict[str, Any]) -> None:
    """Error tickets arrive with their details, one per recipient."""
    gone, nested, often, good = seen["errors"]
    token = "ExponentPushToken[node!DeviceNotRegistered]"
    assert gone["details"] == {"error": "DeviceNotRegistered", "expoPushToken": token}
    assert nested["details"]["fcm"] == {"error": "MismatchSenderId"}
    assert often["details"]["error"] == "MessageRateExceeded"
    assert good["status"] == "ok"


def test_receipts(seen: dict[str, Any]) -> None:
    """Receipts come in chunks of 300, good ones and bad ones."""
    assert seen["idChunks"] == [300, 202]
    receipts = seen["receipts"]
    assert {ticket["id"] for ticket in seen["tickets"]} < receipts.keys()
    bad = receipts.pop(seen["late"]["id"])
    assert (bad["status"], bad["details"]["error"]) == ("error", "DeviceNotRegistered")
    assert {receipt["status"] for receipt in receipts.values()} == {"ok"}


def test_429_is_retried(seen: dict[str, Any]) -> None:
    """After two refusals the third try goes through; when refusals do not end, the SDK says so."""
    assert seen["retried"][0]["status"] == "ok"
    assert (seen["givenUp"]["statusCode"], seen["givenUp"]["code"]) == (429, "TOO_MANY_REQUESTS")


def test_refusals(seen: dict[str, Any]) -> None:
    """Refused requests are errors with code and status; mixed projects carry the map to split by."""
    assert seen["mixed"]["code"] == "PUSH_TOO_MANY_EXPERIENCE_IDS"
    assert seen["mixed"]["details"] == {
        "@relevo/app": ["ExponentPushToken[node-0]"],
        "@acme/other": ["ExponentPushToken[node!project=@acme/other]"],
    }
    assert (seen["tooMany"]["statusCode"], seen["tooMany"]["code"]) == (400, "PUSH_TOO_MANY_NOTIFICATIONS")
    for refused in (seen["stranger"], seen["strangerReceipts"]):
        assert (refused["statusCode"], refused["code"]) == (401, "UNAUTHORIZED")


def test_broken_answers(seen: dict[str, Any]) -> None:
    """A missing ticket and a gateway's page are noticed by the SDK."""
    assert "Expected Expo to respond with 2 tickets but got 1" in seen["short"]["message"]
    assert seen["gateway"]["statusCode"] == 504
