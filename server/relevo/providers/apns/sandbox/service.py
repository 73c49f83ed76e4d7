"""APNs in the sandbox: one notification a request, for the phones of one environment, with a team's provider token."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from relevo.providers.apns.sandbox import answers
from relevo.providers.apns.sandbox.keys import KEY_ID, TEAM_ID, ApnsKeys
from relevo.providers.apns.sandbox.tokens import ENVIRONMENTS, SERVICE
from relevo.sandbox.faults.expo import Exchange
from relevo.sandbox.push_service import Device
from relevo.sandbox.services import json_web_tokens
from relevo.sandbox.services.exchange import Peer, Request, Service
from relevo.sandbox.services.json_web_tokens import BadToken
from relevo.sandbox.services.served import Served
from relevo.sandbox.state import SandboxState
from relevo.sandbox.waiting import Kept

PATH = "/3/device/"
MAX_BYTES = 4_096
TOPIC = "com.example.relevo"
_MAX_VOIP_BYTES = 5_120
_MAX_COLLAPSE_BYTES = 64
_STORED_S = 30 * 86_400.0
_TEAM = "com.example."
_SUFFIXES = {
    "voip": ".voip",
    "complication": ".complication",
    "fileprovider": ".pushkit.fileprovider",
    "liveactivity": ".push-type.liveactivity",
    "location": ".location-query",
    "pushtotalk": ".voip-ptt",
    "widgets": ".push-type.widgets",
    "controls": ".push-type.controls",
}
_PUSH_TYPES = {"alert", "background", "mdm", *_SUFFIXES}
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_TOPIC = re.compile(r"[A-Za-z0-9.-]{1,255}")
_BACKGROUND_PRIORITY = "5"
_LIFE_S = 3_600
_CLOCK_SKEW_S = 60
_MAX_KNOWN = 1_000


class Refusal(Exception):  # noqa: N818 an answer, not an error of ours
    """The request is refused, for a reason of Apple's."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        assert reason in answers.STATUS


class ProviderTokens:
    """The tokens that were shown: signed by a key of the team, for this environment, young, not renewed too often.

    Of one that is known only its age is looked at again.
    """

    def __init__(self, state: SandboxState, keys: ApnsKeys) -> None:
        self._state = state
        self._keys = keys
        self._known: dict[str, dict[str, Any]] = {}
        self._updated: dict[str, float] = {}

    def check(self, authorization: str | None, environment: str, peer: Peer) -> None:
        """Accept the token of a request on a connection; raises Refusal."""
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Refusal("MissingProviderToken")
        known = self._known.get(token) or self._verify(token)
        kid = known["kid"]
        if time.time() - known["iat"] > _LIFE_S:
            raise Refusal("ExpiredProviderToken")
        if self._keys.by_id[kid].environment not in (None, environment):
            raise Refusal("BadEnvironmentKeyIdInToken")
        if peer.key_id not in (None, kid):
            raise Refusal("UnrelatedKeyIdInToken")
        if token not in self._known:
            self._remember(token, known)
        peer.key_id = kid

    def _verify(self, token: str) -> dict[str, Any]:
        try:
            header, claims = json_web_tokens.read(token)
            kid, issued = str(header.get("kid")), claims.get("iat")
            key = self._keys.by_id.get(kid)
            if key is None or claims.get("iss") != TEAM_ID or not isinstance(issued, int | float):
                raise Refusal("InvalidProviderToken")
            json_web_tokens.verify(token, key.public)
        except BadToken:
            raise Refusal("InvalidProviderToken") from None
        if issued > time.time() + _CLOCK_SKEW_S:
            raise Refusal("InvalidProviderToken")
        return {"kid": kid, "iat": issued}

    def _remember(self, token: str, known: dict[str, Any]) -> None:
        """Take note of a new token; one that comes too soon after the last is refused."""
        now, kid = time.monotonic(), known["kid"]
        before = self._updated.get(kid)
        if before is not None and now - before < self._state.settings.apns_token_interval_s:
            raise Refusal("TooManyProviderTokenUpdates")
        self._updated[kid] = now
        while len(self._known) >= _MAX_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[token] = known


class Apns(Service):
    """The service of one environment; a connection has one stream until it showed a valid token."""

    name = SERVICE.name
    speaks_http1 = False

    def __init__(self, state: SandboxState, environment: str, tokens: ProviderTokens) -> None:
        self._state = state
        self._environment = environment
        self._tokens = tokens

    def streams(self, peer: Peer) -> int:
        """Return how many streams a connection may have open now."""
        return self._state.settings.apns_streams if peer.key_id else 1

    def goodbye(self) -> bytes:
        """Return the reason a GOAWAY gives."""
        return b'{"reason":"Shutdown"}'

    def answer(self, request: Request, peer: Peer) -> Exchange:
        """Take a notification, or give the reason why not."""
        apns_id = request.header("apns-id") or str(uuid.uuid4()).upper()
        try:
            self._tokens.check(request.header("authorization"), self._environment, peer)
            device, topic = self._check(request)
        except Refusal as refusal:
            shown = apns_id if _UUID.fullmatch(apns_id) else str(uuid.uuid4()).upper()
            return Exchange(answers.refused(refusal.reason, shown))
        token = request.path.removeprefix(PATH).lower()
        fault = self._state.fault(self.name, token, device.faults, topic)
        if fault is None or fault.delivers:
            self._state.deliver(self.name, token, _shown(request), _kept(request, topic))
        unique_id = str(uuid.uuid4()) if self._environment == "sandbox" else None
        return SERVICE.spoiled(fault, answers.taken(apns_id, unique_id), device.faults)

    def _check(self, request: Request) -> tuple[Device, str]:
        if not f"{request.path}/".startswith(PATH):
            raise Refusal("BadPath")
        if request.method != "POST":
            raise Refusal("MethodNotAllowed")
        device = self._device(request.path[len(PATH) :])
        topic = _check_headers(request)
        if not topic.startswith(_TEAM):
            raise Refusal("TopicDisallowed")
        base = topic.removesuffix(_SUFFIXES.get(request.header("apns-push-type") or "", ""))
        if device.home and device.belongs_to(TOPIC) != base:
            raise Refusal("DeviceTokenNotForTopic")
        _check_payload(request)
        return device, base

    def _device(self, token: str) -> Device:
        if not token:
            raise Refusal("MissingDeviceToken")
        try:
            device = SERVICE.read(token)
        except ValueError:
            raise Refusal("BadDeviceToken") from None
        if device.home not in ("", self._environment):
            raise Refusal("BadDeviceToken")
        return device


def _check_headers(request: Request) -> str:
    """Return the topic, if all headers are as they should be."""
    names = [name for name, _ in request.headers if name.startswith("apns-") or name == "authorization"]
    if len(set(names)) != len(names):
        raise Refusal("DuplicateHeaders")
    topic = request.header("apns-topic")
    push_type = request.header("apns-push-type") or "alert"
    checks = (
        ("MissingTopic", bool(topic)),
        ("BadTopic", _TOPIC.fullmatch(topic or "") is not None),
        ("InvalidPushType", push_type in _PUSH_TYPES),
        ("BadMessageId", _UUID.fullmatch(request.header("apns-id") or str(uuid.uuid4())) is not None),
        ("BadCollapseId", len((request.header("apns-collapse-id") or "").encode("latin-1")) <= _MAX_COLLAPSE_BYTES),
        ("BadExpirationDate", _is_epoch(request.header("apns-expiration"))),
        ("BadPriority", _is_priority(request.header("apns-priority"), push_type)),
    )
    for reason, is_good in checks:
        if not is_good:
            raise Refusal(reason)
    return topic or ""


def _is_epoch(text: str | None) -> bool:
    return text is None or (text.isascii() and text.isdigit() and len(text) <= len(str(2**53)))


def _is_priority(text: str | None, push_type: str) -> bool:
    if push_type == "background":
        return text == _BACKGROUND_PRIORITY
    return text in (None, "10", "5", "1")


def _check_payload(request: Request) -> None:
    most = _MAX_VOIP_BYTES if request.header("apns-push-type") == "voip" else MAX_BYTES
    if not request.body:
        raise Refusal("PayloadEmpty")
    if len(request.body) > most:
        raise Refusal("PayloadTooLarge")
    try:
        payload = json.loads(request.body)
    except (ValueError, RecursionError):
        raise Refusal("PayloadEmpty") from None
    if not isinstance(payload, dict) or not payload:
        raise Refusal("PayloadEmpty")


def _shown(request: Request) -> dict[str, Any]:
    """Return what a phone shows: title, body and data, and the notification as it came."""
    payload = json.loads(request.body)
    aps = payload.get("aps") if isinstance(payload.get("aps"), dict) else {}
    alert = aps.get("alert")
    told = alert if isinstance(alert, dict) else {"body": alert}
    data = {name: value for name, value in payload.items() if name != "aps"}
    headers = {name: value for name, value in request.headers if name.startswith("apns-")}
    return {
        "title": told.get("title"),
        "body": told.get("body"),
        "data": data,
        "apns": {"headers": headers, "aps": aps},
    }


def _kept(request: Request, topic: str) -> Kept:
    """Return how long Apple keeps it: until it expires; 0 is not at all, and nothing said 30 days."""
    expiration = request.header("apns-expiration")
    if expiration is None:
        return Kept(topic, _STORED_S)
    return Kept(topic, min(int(expiration) - time.time(), _STORED_S))


class ServedApns(Served):
    """Both environments of APNs, with the keys of the team that sends to them."""

    service = SERVICE
    secret_paths = (PATH,)

    def __init__(self, state: SandboxState, folder: Path, addresses: Sequence[str]) -> None:
        self._addresses = addresses
        self.keys = ApnsKeys(folder)
        self._file = self.keys.add(KEY_ID, None)
        tokens = ProviderTokens(state, self.keys)
        self._services = tuple(Apns(state, environment, tokens) for environment in ENVIRONMENTS)

    @property
    def services(self) -> Sequence[Service]:
        """The answering application of each environment."""
        return self._services

    @property
    def entry(self) -> Mapping[str, Any]:
        """The service's entry in PUSH_PROJECTS_FILE."""
        return {"key_file": self._file.name, "key_id": KEY_ID, "team_id": TEAM_ID, "topic": TOPIC}

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings of its addresses."""
        return dict(zip(("APNS_BASE_URL", "APNS_SANDBOX_BASE_URL"), self._addresses, strict=True))

    @property
    def files(self) -> Mapping[str, Path]:
        """The key that every sender may use."""
        return {"apns_key_file": self._file}


SERVED = ServedApns
