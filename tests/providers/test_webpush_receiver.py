"""Web Push, as a push service of other people's making takes it: `web-push-testing` of npm."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from relevo.core.model import Ticket
from relevo.providers.lookups import Lookups
from relevo.providers.push_projects import PushProjects
from relevo.providers.webpush.credentials import make_pair
from relevo.providers.webpush.provider import WebPush
from support import kits
from support.forward_proxy import CERTIFICATE
from support.optional_parts import find_part

PROGRAM = Path(__file__).parent / "node" / "push_service.cjs"
Ask = Callable[..., Any]


@pytest.fixture
def place() -> Iterator[str]:
    """Where web-push-testing listens, by the name that its certificate has."""
    command = [find_part("node"), str(PROGRAM), str(CERTIFICATE)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=kits.install(), text=True, **pipes) as service:
        assert service.stdin is not None
        assert service.stdout is not None
        yield f"push.example:{int(service.stdout.readline())}"
        service.stdin.close()


@pytest.fixture
def ask(place: str) -> Iterator[Ask]:
    """Ask the service something, as a page or its own tests would."""
    with requests.Session() as session:
        session.trust_env, session.verify = False, False
        port = place.rpartition(":")[2]

        def post(path: str, **body: str) -> Any:
            answer = session.post(f"https://127.0.0.1:{port}/{path}", json=body, timeout=30)
            assert answer.status_code == 200, answer.text
            return answer.json()["data"] if answer.text.startswith("{") else None

        yield post


@pytest.mark.needs("kits")
@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_a_push_service_of_others_takes_and_decrypts(place: str, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """It verifies the VAPID token by the page's key and decrypts what was sent; another pair is refused as a credential
    at fault, and a subscription that ended is gone."""
    monkeypatch.setattr(Lookups, "addresses", lambda *_: ["127.0.0.1"])
    pair, stranger = make_pair(), make_pair()
    made = [ask("subscribe", userVisibleOnly="true", applicationServerKey=pair.public) for _ in range(2)]
    keys = {"shop": pair.private_pem, "other": stranger.private_pem}
    entries = {
        name: {"webpush": {"private_key": key, "subject": "mailto:ops@example.com", "hosts": [place]}}
        for name, key in keys.items()
    }
    provider = WebPush(
        PushProjects(None, json.dumps(entries)), timeout_ms=10_000, connect_timeout_ms=5_000, ca_file=str(CERTIFICATE)
    )

    def send(project: str, subscription: dict[str, Any]) -> Ticket:
        token = json.dumps(
            {"endpoint": f"https://{place}/notify/{subscription['clientHash']}", "keys": subscription["keys"]}
        )
        message = {"to": token, "title": "Hola", "body": "¿Qué tal?", "ttl": 60}
        [ticket] = provider.send([message], f"webpush::{project}::{place}").tickets
        return ticket

    try:
        assert send("shop", made[0]).fate == "ok"
        [got] = ask("get-notifications", clientHash=made[0]["clientHash"])["messages"]
        assert (json.loads(got)["title"], json.loads(got)["body"]) == ("Hola", "¿Qué tal?")
        assert send("other", made[0]).fate == "credential"
        ask(f"expire-subscription/{made[1]['clientHash']}")
        gone = send("shop", made[1])
        assert (gone.fate, gone.code) == ("invalid", "SubscriptionGone")
        assert len(ask("get-notifications", clientHash=made[0]["clientHash"])["messages"]) == 1
    finally:
        provider.close()
