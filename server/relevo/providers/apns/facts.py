"""What is true of APNs, without asking it."""

from __future__ import annotations

from relevo.providers.facts import ProviderFacts, Service

SENDING = ProviderFacts("APNs", platforms=("ios", "unknown"))
SERVICE = Service("apns", SENDING, ("ios",), "the device token of APNs in hexadecimal digits", "environment")
