"""What is true of Web Push, without asking anybody."""

from __future__ import annotations

from relevo.providers.facts import ProviderFacts, Service
from relevo.providers.fcm.facts import WEB

SENDING = ProviderFacts(
    "Web Push",
    max_payload_bytes=3_993,  # what is left of 4,096 when a message is encrypted
    platforms=("web", "android", "unknown"),
    takes_silent=False,
)
FIELDS = {
    "title": ("=",),
    "body": ("=",),
    "data": ("=",),
    "ttl_s, deadline": ("TTL",),
    "push.priority, lane": ("Urgency",),
    "collapse": ("~Topic, as a hash",),
    "push.badge": ("=",),
    "push.collapseId": ("~Topic, as a hash",),
    "push.tag": ("=",),
    "push.icon": ("=",),
    "push.image": ("image",),
    "push.link": ("data.url",),
    "push.actions": ("=",),
    "push.richContent": ("image",),
    **{f"push.web.{name}": ("=",) for name in WEB},
    "push.web.urgency": ("Urgency",),
}
"""By field of an event, what it is on each platform; `Service.fields` says how to read it."""
SERVICE = Service(
    "webpush", SENDING, ("web",), "the JSON of a browser's push subscription, as text", "host", fields=FIELDS
)
