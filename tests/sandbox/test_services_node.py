"""Libraries that others wrote for FCM, APNs and Web Push send into the sandbox, and are understood."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from cryptography.hazmat.primitives import serialization
from google.auth.exceptions import RefreshError
from google.auth.transport.requests import Request
from google.oauth2.service_account import Credentials

from relevo.sandbox import Sandbox
from support import senders

PROGRAM = Path(__file__).parent / "node" / "services.mjs"
PACKAGES = ("@parse/node-apn", "firebase-admin", "web-push")


@pytest.fixture(scope="module")
def native() -> Iterator[Sandbox]:
    """A sandbox with all services."""
    with Sandbox(native=True) as sandbox:
        yield sandbox


def google_credentials(sandbox: Sandbox) -> Credentials:
    """Return what Google's own library makes of the service account, after it got an access token."""
    made = Credentials.from_service_account_file(str(sandbox.service_account_file), scopes=[senders.SCOPE])
    with requests.Session() as session:
        session.trust_env, session.verify = False, str(sandbox.ca_file)
        made.refresh(Request(session=session))
    return made


def test_google_auth_gets_an_access_token(native: Sandbox) -> None:
    """Google's own library changes the service account's assertion for an access token, and hears of a refusal."""
    made = google_credentials(native)
    assert made.valid
    native.add_fault("invalid_grant", service="fcm", on="token", times=1)
    with pytest.raises(RefreshError, match="invalid_grant"):
        google_credentials(native)


@pytest.fixture(scope="module")
def seen(native: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the libraries saw, installed by their names into a folder of the session."""
    folder = tmp_path_factory.mktemp("node")
    install = [
        "npm",
        "install",
        "--omit=optional",
        "--no-audit",
        "--no-fund",
        "--loglevel=error",
        "--prefix",
        str(folder),
    ]
    subprocess.run([*install, *PACKAGES], cwd=folder, check=True, capture_output=True, timeout=300)
    shutil.copy(PROGRAM, folder)
    given = {
        "fcm": native.fcm,
        "accessToken": google_credentials(native).token,
        "projectId": "relevo-sandbox",
        "fcmTokens": [
            native.fcm_token("node"),
            native.fcm_token("node", "UNREGISTERED"),
            native.fcm_token("x", "slow=0.1"),
        ],
        "apns": native.apns,
        "apnsKey": {"key": str(native.apns_key_file), "keyId": senders.KEY_ID, "teamId": senders.TEAM_ID},
        "topic": senders.TOPIC,
        "apnsTokens": [
            native.apns_token("node"),
            native.apns_token("node", "Unregistered"),
            native.apns_token("node", environment="sandbox"),
        ],
        "manyApnsTokens": [native.apns_token(f"many{number}") for number in range(200)],
        "subscriptions": [native.subscription("node"), native.subscription("node", "410")],
        "vapid": vapid(native),
    }
    env = {**os.environ, "SANDBOX": json.dumps(given), "NODE_EXTRA_CA_CERTS": str(native.ca_file), "NO_PROXY": "*"}
    command = ["node", PROGRAM.name]
    ran = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    return dict(json.loads(ran.stdout))


def vapid(sandbox: Sandbox) -> dict[str, str]:
    """Return the VAPID pair as web-push wants it."""
    key: Any = serialization.load_pem_private_key(sandbox.vapid_key_file.read_bytes(), None)
    private = key.private_numbers().private_value.to_bytes(32, "big")
    return {"subject": "mailto:ops@example.com", "publicKey": senders.public(key), "privateKey": senders.b64(private)}


@pytest.mark.needs("npm-packages")
def test_firebase_admin(native: Sandbox, seen: dict[str, Any]) -> None:
    """Messages with every part of firebase-admin's are taken over HTTP/2, and its errors are its own codes."""
    good, gone, slow = seen["fcm"]
    assert good["name"].startswith("projects/relevo-sandbox/messages/")
    assert gone["code"] == "messaging/registration-token-not-registered"
    assert "name" in slow
    [got] = native.received(native.fcm_token("node"))
    assert (got["title"], got["data"], got["fcm"]["android"]["ttl"]) == ("FCM 0", {"number": "0"}, "3.500000000s")


@pytest.mark.needs("npm-packages")
def test_node_apn(native: Sandbox, seen: dict[str, Any]) -> None:
    """Notifications of node-apn arrive, its errors have Apple's reasons, and 200 at once find their streams."""
    good, gone, elsewhere = seen["apns"]["seen"]
    assert good == {"sent": native.apns_token("node")}
    assert (int(gone["status"]), gone["response"]["reason"]) == (410, "Unregistered")
    assert (int(elsewhere["status"]), elsewhere["response"]["reason"]) == (400, "BadDeviceToken")
    assert seen["apns"]["many"] == 200
    [got] = native.received(native.apns_token("node"))
    assert (got["title"], got["data"], got["apns"]["headers"]["apns-collapse-id"]) == ("APNs", {"order": 17}, "c")


@pytest.mark.needs("npm-packages")
def test_web_push(native: Sandbox, seen: dict[str, Any]) -> None:
    """A message of web-push is decrypted by its browser; a subscription that ended is gone."""
    good, gone = seen["webpush"]
    assert good["statusCode"] == 201
    assert good["location"].startswith(f"{native.webpush}/message/")
    assert (gone["statusCode"], json.loads(gone["body"])["errno"]) == (410, 106)
    [got] = native.received(native.subscription("node"))
    assert (got["title"], got["data"], got["webpush"]["topic"]) == ("Web Push", {"order": 17}, "news")
