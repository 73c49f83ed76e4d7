"""What is true of Expo, without asking it."""

from __future__ import annotations

from relevo.providers.facts import ProviderFacts, Service

SENDING = ProviderFacts("Expo")
"""The settings say how Expo's projects are sent: rate, connections, sizes of requests."""
SERVICE = Service("expo", SENDING, ("ios", "android"), "Expo's")
