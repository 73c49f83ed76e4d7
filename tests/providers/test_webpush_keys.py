"""Web Push's cryptography by itself: the standard's example, the largest message, and keys that can sign or cannot."""

from __future__ import annotations

import json
from typing import Any

import http_ece
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from relevo.core import push_hosts
from relevo.providers.http2.client import RefusedAddressError
from relevo.providers.lookups import Lookups
from relevo.providers.push_projects import PushProjects
from relevo.providers.webpush import subscriptions
from relevo.providers.webpush.credentials import check, make_pair
from relevo.providers.webpush.encryption import MAX_PLAIN_BYTES, encrypt
from relevo.providers.webpush.entry import WebPushEntry
from support.browser_keys import SUBJECT, Browser, base64url, from_base64url


def test_the_vector_of_rfc_8291() -> None:
    """The example in the appendix of RFC 8291 comes out byte by byte."""
    number = int.from_bytes(from_base64url("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"), "big")
    body = encrypt(
        b"When I grow up, I want to be a watermelon",
        from_base64url("BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"),
        from_base64url("BTBZMqHH6r4Tts7J_aSIgg"),
        own_key=ec.derive_private_key(number, ec.SECP256R1()),
        salt=from_base64url("DGv6ra1nlYgDCS1FRnbzlw"),
    )
    assert base64url(body) == (
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
    )


def test_the_largest_message_fits() -> None:
    """3,993 bytes become 4,096, which every push service takes; two encryptions of one text differ."""
    browser = Browser("https://fcm.googleapis.com/x")
    point = browser.key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    bodies = [encrypt(b"x" * MAX_PLAIN_BYTES, point, browser.secret) for _ in range(2)]
    assert (MAX_PLAIN_BYTES, len(bodies[0])) == (3_993, 4_096)
    assert bodies[0] != bodies[1]
    plain = http_ece.decrypt(bodies[0], private_key=browser.key, auth_secret=browser.secret, version="aes128gcm")
    assert plain == b"x" * MAX_PLAIN_BYTES


def test_who_is_known() -> None:
    """The browsers' push services are known; an operator names others, of one host or of all below a domain."""
    hosts = push_hosts.Hosts(["ntfy.sh", "Push.Example:8443"], [".up.example"])
    known = [
        "fcm.googleapis.com",
        "updates.push.services.mozilla.com",
        "web.push.apple.com",
        "wns2-by3p.notify.windows.com",
        "ntfy.sh",
        "push.example:8443",
        "a.up.example",
    ]
    assert all(map(hosts.allows, known))
    assert not any(map(hosts.allows, ["up.example", "ntfy.sh:8443", "push.example", "windows.com"]))
    assert [hosts.trusts(place) for place in ("ntfy.sh", "a.up.example", "fcm.googleapis.com")] == [True, False, False]


def test_one_private_address_among_public_ones_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that leads to a public and to a private address is refused as a whole."""
    monkeypatch.setattr(Lookups, "addresses", lambda *_: ["8.8.8.8", "10.0.0.1"])
    with pytest.raises(RefusedAddressError, match="private"):
        subscriptions.resolver(Lookups(), allow_private=False)("push.example", 443, 1)


@pytest.mark.parametrize("kind", ["PEM", "base64url"])
def test_a_new_pair_can_be_used(kind: str) -> None:
    """`relevo webpush keys` makes keys that sign; keys of other tools, 32 bytes in base64url, do too."""
    pair = make_pair()
    key = serialization.load_pem_private_key(pair.private_pem.encode(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    number = base64url(key.private_numbers().private_value.to_bytes(32, "big"))
    check(project(pair.private_pem if kind == "PEM" else number))
    assert from_base64url(pair.public) == key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def project(private_key: str, subject: str = SUBJECT) -> Any:
    """Return a project with this key."""
    entry = {"private_key": private_key, "subject": subject}
    return PushProjects(None, json.dumps({"shop": {"webpush": entry}})).find(WebPushEntry, "shop")


@pytest.mark.parametrize(
    ("private_key", "subject", "said"),
    [
        ("nonsense", SUBJECT, "private key"),
        (base64url(b"x" * 31 + b"yy"), SUBJECT, "private key"),
        ("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----", SUBJECT, "private key"),
        (make_pair().private_pem, "mailto:me@localhost", "subject"),
        (make_pair().private_pem, "https://localhost:80/x", "subject"),
    ],
)
def test_a_key_that_cannot_sign_is_said(private_key: str, subject: str, said: str) -> None:
    """What is no key, or a subject where nobody can be reached, is refused in words that hold no secret."""
    with pytest.raises(ValueError, match=said) as raised:
        check(project(private_key, subject))
    assert private_key not in str(raised.value)


def test_a_subscription_has_4096_characters_at_most() -> None:
    """One of exactly so many is read, one more is refused."""
    token = Browser("https://push.example.com/x").token
    padded = token + " " * (4_096 - len(token))
    assert subscriptions.read(padded) == subscriptions.read(token)
    with pytest.raises(ValueError, match="no text of 1 to 4,096"):
        subscriptions.read(padded + " ")
