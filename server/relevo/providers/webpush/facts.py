"""What is true of Web Push, without asking anybody."""

from __future__ import annotations

from relevo.providers.facts import ProviderFacts, Service

SENDING = ProviderFacts(
    "Web Push",
    max_payload_bytes=3_993,  # what is left of 4,096 when a message is encrypted
    platforms=("web", "android", "unknown"),
    takes_silent=False,
)
SERVICE = Service("webpush", SENDING, ("web",), "the JSON of a browser's push subscription, as text", "host")
