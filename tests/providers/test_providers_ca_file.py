"""PUSH_CA_FILE: one setting names the authorities that are trusted beside the known ones, by every push service."""

from __future__ import annotations

from typing import Any, cast

import pytest

from relevo import config
from relevo.app import push_services
from relevo.core.proxies import Proxies
from relevo.providers.webhook.provider import Webhook
from support.expo_pushes import Make, message
from support.fake_expo import FakeExpo
from support.forward_proxy import CERTIFICATE, FakeProxy

SECURE = "https://push.example"


@pytest.mark.parametrize(("ca_file", "kind"), [(str(CERTIFICATE), "answered"), (None, "not_sent")])
def test_expo_trusts_it(fake: FakeExpo, make: Make, ca_file: str | None, kind: str) -> None:
    """Behind a proxy that signs certificates itself, pushes leave with the setting, and none without it."""
    with FakeProxy(fake.url) as proxy:
        reply = make(base_url=SECURE, proxies=Proxies(https=proxy.url()), ca_file=ca_file).send([message()])
    assert reply.kind == kind


def test_the_setting_reaches_expo_and_webhooks() -> None:
    """What is set is handed to Expo; a webhook's context has the authority beside the known ones."""
    settings = config.load({"PUSH_CA_FILE": str(CERTIFICATE), "EXPO_BASE_URL": SECURE}, None)
    expo = push_services._expo(settings, cast("Any", None))
    assert expo._ca_file == str(CERTIFICATE)
    usual, ours = ({"timeout_ms": 1, "connect_timeout_ms": 1, "ca_file": each} for each in (None, str(CERTIFICATE)))
    known, trusted = (len(Webhook({}, **how)._tls.get_ca_certs()) for how in (usual, ours))
    assert trusted == known + 1
