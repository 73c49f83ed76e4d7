"""What is true of Expo, without asking it."""

from __future__ import annotations

from relevo.providers.facts import ProviderFacts, Service

SENDING = ProviderFacts("Expo")
"""The settings say how Expo's projects are sent: rate, connections, sizes of requests."""
FIELDS = {
    "title": ("=", "="),
    "body": ("=", "="),
    "data": ("=", "="),
    "no title and no body": ("contentAvailable", "data alone"),
    "ttl_s, deadline": ("ttl", "ttl"),
    "push.priority, lane": ("priority", "priority"),
    "collapse": ("collapseId", "tag"),
    "push.subtitle": ("=", ""),
    "push.sound": ("=", "="),
    "push.badge": ("=", ""),
    "push.expiration": ("=", "="),
    "push.interruptionLevel": ("=", ""),
    "push.relevanceScore": ("=", ""),
    "push.channelId": ("", "="),
    "push.categoryId": ("=", "="),
    "push.collapseId": ("=", ""),
    "push.threadId": ("=", ""),
    "push.targetContentId": ("=", ""),
    "push.filterCriteria": ("=", ""),
    "push.tag": ("", "="),
    "push.icon": ("", "="),
    "push.image": ("richContent.image", "richContent.image"),
    "push.link": ("data.url", "data.url"),
    "push.actions": ("~data.actions, buttons by categoryId", "~data.actions, buttons by categoryId"),
    "push.richContent": ("=", "="),
    "push.mutableContent": ("=", ""),
    "push.contentAvailable": ("=", ""),
    "push._contentAvailable": ("=", ""),
    "push._displayInForeground": ("=", "="),
}
"""By field of an event, what it is on each platform; `Service.fields` says how to read it."""
SERVICE = Service("expo", SENDING, ("ios", "android"), "Expo's", fields=FIELDS)
