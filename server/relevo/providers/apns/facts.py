"""What is true of APNs, without asking it."""

from __future__ import annotations

from relevo.providers.facts import ProviderFacts, Service

SENDING = ProviderFacts("APNs", platforms=("ios", "unknown"))
IPHONE = {
    "launchImage": "aps.alert.launch-image",
    "titleLocKey": "aps.alert.title-loc-key",
    "titleLocArgs": "aps.alert.title-loc-args",
    "subtitleLocKey": "aps.alert.subtitle-loc-key",
    "subtitleLocArgs": "aps.alert.subtitle-loc-args",
    "locKey": "aps.alert.loc-key",
    "locArgs": "aps.alert.loc-args",
}
"""What no other platform has, as iPhones get it."""
FIELDS = {
    "title": ("aps.alert.title",),
    "body": ("aps.alert.body",),
    "data": ("beside aps",),
    "no title and no body": ("background",),
    "ttl_s, deadline": ("apns-expiration",),
    "push.priority, lane": ("apns-priority",),
    "collapse": ("apns-collapse-id",),
    "push.subtitle": ("aps.alert.subtitle",),
    "push.sound": ("aps.sound",),
    "push.badge": ("aps.badge",),
    "push.interruptionLevel": ("aps.interruption-level",),
    "push.relevanceScore": ("aps.relevance-score",),
    "push.categoryId": ("aps.category",),
    "push.collapseId": ("apns-collapse-id",),
    "push.threadId": ("aps.thread-id",),
    "push.targetContentId": ("aps.target-content-id",),
    "push.filterCriteria": ("aps.filter-criteria",),
    "push.image": ("~beside aps, for the app's extension",),
    "push.link": ("url",),
    "push.actions": ("~actions beside aps, buttons by categoryId",),
    "push.richContent": ("~beside aps, for the app's extension",),
    "push.mutableContent": ("aps.mutable-content",),
    "push.contentAvailable": ("aps.content-available",),
    "push._contentAvailable": ("aps.content-available",),
    **{f"push.apns.{name}": (where,) for name, where in IPHONE.items()},
}
"""By field of an event, what it is on each platform; `Service.fields` says how to read it."""
SERVICE = Service(
    "apns", SENDING, ("ios",), "the device token of APNs in hexadecimal digits", "environment", fields=FIELDS
)
