"""One call of each route, for the page on the HTTP API; a test makes each of them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

_PLACES = {"event_id": "$EVENT", "installation_id": "$PHONE", "licitacion_id": "$TENDER"}
"""The value for a parameter of a path: a variable that the page sets."""
_OWNER = {"owner": "user-7"}
_EVENT = {"type": "order.shipped", "title": "On its way", "audience": "owners", "owners": ["user-7"]}
_TEXTS = {"type": "order.shipped", "default": "en", "texts": {"en": {"title": "Sent"}, "es": {"title": "Enviado"}}}
_HOURS = {"windows": ["22:00-07:00"], "zone": "America/Santiago"}


@dataclass(frozen=True)
class Example:
    """A call: its query, its body, and what stands for the parameters of its path."""

    query: str = ""
    body: Any = None
    fills: dict[str, str] = field(default_factory=dict)

    def curl(self, method: str, path: str) -> str:
        """Return the call as curl makes it."""
        place = re.sub(r"\{(\w+)\}", lambda name: {**_PLACES, **self.fills}[name[1]], path)
        address = f'"$RELEVO{place}{"?" if self.query else ""}{self.query}"'
        words = ["curl"]
        words += [] if path.startswith("/health") else ['-H "$AUTH"']
        words += [f"-X {method}"] if method not in (("POST",) if self.body is not None else ("GET",)) else []
        words += [] if self.body is None else [f"--json {self._written()}"]
        return " ".join([*words, address])

    def _written(self) -> str:
        text = json.dumps(self.body, ensure_ascii=False).replace('"$DELIVERY"', "$DELIVERY")  # a number
        return '"' + text.replace('"', '\\"') + '"' if "$" in text else f"'{text}'"


def _of(query: str = "", body: Any = None, **fills: str) -> Example:
    return Example(query, body, fills)


EXAMPLES: dict[tuple[str, str], Example] = {
    ("GET", "/health/live"): _of(),
    ("GET", "/health/ready"): _of(),
    ("POST", "/v1/events"): _of("wait_ms=0", {**_EVENT, "key": "order-17"}),
    ("GET", "/v1/events"): _of("type=order.shipped&key=order-17&wait_ms=0"),
    ("PUT", "/v1/events"): _of(
        "", {**_EVENT, "key": "order-18", "body": "Today", "scheduled_at": "2199-01-01T09:00:00Z"}
    ),
    ("POST", "/v1/events/batch"): _of("", {"events": [{**_EVENT, "key": "order-19"}, {**_EVENT, "key": "order-20"}]}),
    ("POST", "/v1/events/preview"): _of("sample=10", {**_EVENT, "key": "order-21"}),
    ("GET", "/v1/events/{event_id}"): _of("wait_ms=0"),
    ("POST", "/v1/events/{event_id}/cancel"): _of("", {"reason": "the customer called"}),
    ("POST", "/v1/events/{event_id}/complete"): _of("", _OWNER),
    ("GET", "/v1/events/{event_id}/deliveries"): _of("limit=50"),
    ("GET", "/v1/events/{event_id}/waits"): _of(),
    ("GET", "/v1/events/{event_id}/explanation"): _of("installation_id=$PHONE"),
    ("POST", "/v1/events/explanation"): _of("installation_id=$PHONE", {**_EVENT, "key": "order-21"}),
    ("GET", "/v1/event-types"): _of(),
    ("PUT", "/v1/event-types/{event_type}"): _of(
        "", {"lane": "urgent", "ttl_s": 3600, "opens": True}, event_type="order.shipped"
    ),
    ("DELETE", "/v1/event-types/{event_type}"): _of(event_type="order.shipped"),
    ("GET", "/v1/installations"): _of("owner=user-7"),
    ("POST", "/v1/owners/log-out"): _of("", _OWNER),
    ("POST", "/v1/owners/complete"): _of("", _OWNER),
    ("POST", "/v1/owners/forget"): _of("", _OWNER),
    ("GET", "/v1/categories"): _of("owner=user-7&locale=es"),
    ("PUT", "/v1/categories/{category}"): _of(
        "", {"rule": "off", "texts": {"en": {"name": "Offers"}}}, category="offers"
    ),
    ("POST", "/v1/owners/choices"): _of(
        "", {**_OWNER, "category": "offers", "wanted": True, "words": "Yes, send me offers.", "locale": "en"}
    ),
    ("POST", "/v1/owners/block"): _of("", {**_OWNER, "reason": "asked by mail"}),
    ("POST", "/v1/owners/unblock"): _of("", _OWNER),
    ("POST", "/v1/owners/export"): _of("", {**_OWNER, "kind": "events"}),
    ("GET", "/v1/installations/{installation_id}/choices"): _of("locale=es"),
    ("PUT", "/v1/installations/{installation_id}/choices/{category}"): _of("", {"wanted": False}, category="offers"),
    ("POST", "/v1/owners/quiet"): _of("", {**_OWNER, **_HOURS}),
    ("POST", "/v1/owners/attributes"): _of("", {**_OWNER, "attributes": {"plan": "pro", "tags": ["beta"]}}),
    ("GET", "/v1/quiet"): _of("project=default"),
    ("PUT", "/v1/quiet"): _of("", {"project": "default", **_HOURS}),
    ("GET", "/v1/caps"): _of("project=default"),
    ("PUT", "/v1/caps"): _of("", {"per": "day", "most": 5, "category": "offers"}),
    ("GET", "/v1/installations/{installation_id}/quiet"): _of(),
    ("PUT", "/v1/installations/{installation_id}/quiet"): _of("", {**_HOURS, "all_phones": True}),
    ("GET", "/v1/installations/{installation_id}/attributes"): _of(),
    ("POST", "/v1/installations/{installation_id}/attributes"): _of("", {"attributes": {"device.theme": "dark"}}),
    ("PUT", "/v1/news/{subscription}"): _of("", {"kinds": ["delivery.failed"]}, subscription="billing"),
    ("GET", "/v1/news/{subscription}"): _of("limit=100", subscription="billing"),
    ("POST", "/v1/news/{subscription}/acknowledge"): _of("", {"position": 0}, subscription="billing"),
    ("POST", "/v1/words"): _of("", _TEXTS),
    ("GET", "/v1/words"): _of(),
    ("GET", "/v1/words/{event_type}"): _of(event_type="order.shipped"),
    ("POST", "/v1/words/preview"): _of("", _TEXTS),
    ("PUT", "/v1/installations/{installation_id}"): _of(
        "", {"token": "ExponentPushToken[abc]", "owner": "user-7", "platform": "ios"}
    ),
    ("DELETE", "/v1/installations/{installation_id}"): _of(),
    ("POST", "/v1/installations/{installation_id}/log-out"): _of(),
    ("POST", "/v1/installations/{installation_id}/complete"): _of(),
    ("POST", "/v1/installations/{installation_id}/opened"): _of("", {"delivery_id": "$DELIVERY", "action": "reply"}),
    ("GET", "/v1/installations/{installation_id}/preferences"): _of(),
    ("GET", "/v1/installations/{installation_id}/preferences/{name}"): _of(name="default"),
    ("PUT", "/v1/installations/{installation_id}/preferences/{name}"): _of(
        "", {"topics": ["football"]}, name="default"
    ),
    ("DELETE", "/v1/installations/{installation_id}/preferences/{name}"): _of(name="default"),
    ("GET", "/v1/installations/{installation_id}/deliveries"): _of("limit=50"),
    ("GET", "/v1/inbox"): _of("owner=user-7&status=unread&limit=20"),
    ("GET", "/v1/inbox/counts"): _of("owner=user-7"),
    ("POST", "/v1/inbox/read-before"): _of("", _OWNER),
    ("POST", "/v1/inbox/seen-before"): _of("", _OWNER),
    ("POST", "/v1/inbox/{event_id}/{mark}"): _of("", _OWNER, mark="read"),
    ("GET", "/v1/licitaciones"): _of("region=Maule&limit=20"),
    ("GET", "/v1/licitaciones/{licitacion_id}"): _of(),
    ("GET", "/v1/rubros"): _of(),
    ("GET", "/v1/regions"): _of(),
    ("GET", "/v1/ops/stats"): _of(),
    ("GET", "/v1/ops/audit"): _of("limit=50"),
    ("POST", "/v1/ops/cycles/{name}/run"): _of(name="reaper"),
    ("POST", "/v1/ops/cycles/{name}/pause"): _of("", {"reason": "maintenance"}, name="ingest"),
    ("POST", "/v1/ops/cycles/{name}/resume"): _of(name="ingest"),
    ("POST", "/v1/ops/redrive"): _of("", {"event_type": "order.shipped", "dry_run": True}),
    ("POST", "/v1/shadow/sent"): _of(
        "", {"sends": [{"sent_at": "2026-11-17T09:30:00Z", "owner": "user-7", "key": "order-17", "id": "n-1"}]}
    ),
    ("POST", "/v1/config/plan"): _of("", {"config": {"event_types": {"offer": {"inbox_days": 30}}}}),
    ("POST", "/v1/config/apply"): _of("", {"config": {"event_types": {"offer": {"inbox_days": 30}}}}),
    ("POST", "/v1/ops/release"): _of("", {"event_type": "order.shipped"}),
    ("GET", "/metrics"): _of(),
}
