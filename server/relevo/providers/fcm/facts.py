"""What is true of FCM, without asking it."""

from __future__ import annotations

from relevo.providers.facts import ProviderFacts, Service

SENDING = ProviderFacts(
    "FCM",
    rate_per_s=5_000,  # of each platform: Google takes 10,000 a second of a project, and most have two
    ramp_s=60,
    least_retry_ms=10_000,
    platforms=("android", "ios", "web", "unknown"),
)
SERVICE = Service("fcm", SENDING, ("android", "ios", "web"), "FCM's registration token", "platform")
