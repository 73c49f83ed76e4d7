"""Facts about FCM that need no request."""

from __future__ import annotations

from relevo.providers.apns.facts import IPHONE
from relevo.providers.facts import Code, ProviderFacts, Service, Token
from relevo.providers.http2.facts import CODES as CONNECTION_CODES
from relevo.providers.http2.facts import CREDENTIALS, GONE, OTHER_APP, OUTAGE, THROTTLED

SENDING = ProviderFacts(
    "FCM",
    rate_per_s=5_000,  # of each platform: Google takes 10,000 a second of a project, and most have two
    ramp_s=60,
    least_retry_ms=10_000,
    platforms=("android", "ios", "web", "unknown"),
)
ANDROID = {
    "color": "notification.color",
    "ticker": "notification.ticker",
    "clickAction": "notification.click_action",
    "sticky": "notification.sticky",
    "localOnly": "notification.local_only",
    "directBootOk": "android.direct_boot_ok",
    "visibility": "notification.visibility",
    "notificationPriority": "notification.notification_priority",
    "titleLocKey": "notification.title_loc_key",
    "titleLocArgs": "notification.title_loc_args",
    "bodyLocKey": "notification.body_loc_key",
    "bodyLocArgs": "notification.body_loc_args",
}
"""Fields that no other platform has, as Android phones get them."""
WEB = {
    "badgeIcon": "notification.badge",
    "requireInteraction": "notification.requireInteraction",
    "renotify": "notification.renotify",
    "silent": "notification.silent",
    "vibrate": "notification.vibrate",
    "lang": "notification.lang",
    "dir": "notification.dir",
    "timestamp": "notification.timestamp",
    "urgency": "Urgency",
}
"""Fields that no other platform has, as browsers get them."""
FIELDS = {
    "title": ("notification.title", "aps.alert.title", "notification.title"),
    "body": ("notification.body", "aps.alert.body", "notification.body"),
    "data": ("~data, every value as text", "~data, every value as text", "~data, every value as text"),
    "no title and no body": ("data alone", "background", "data alone"),
    "ttl_s, deadline": ("ttl", "apns-expiration", "TTL"),
    "push.priority, lane": ("priority", "apns-priority", "Urgency"),
    "collapse": ("notification.tag", "apns-collapse-id", "~Topic, as a hash"),
    "push.subtitle": ("", "aps.alert.subtitle", ""),
    "push.sound": ("notification.sound", "aps.sound", ""),
    "push.badge": ("notification.notification_count", "aps.badge", ""),
    "push.interruptionLevel": ("", "aps.interruption-level", ""),
    "push.relevanceScore": ("", "aps.relevance-score", ""),
    "push.channelId": ("notification.channel_id", "", ""),
    "push.categoryId": ("", "aps.category", ""),
    "push.collapseId": ("", "apns-collapse-id", "~Topic, as a hash"),
    "push.threadId": ("", "aps.thread-id", ""),
    "push.targetContentId": ("", "aps.target-content-id", ""),
    "push.filterCriteria": ("", "aps.filter-criteria", ""),
    "push.tag": ("notification.tag", "", "notification.tag"),
    "push.icon": ("notification.icon", "", "notification.icon"),
    "push.image": ("notification.image", "fcm_options.image", "notification.image"),
    "push.link": ("data.url", "data.url", "fcm_options.link"),
    "push.actions": ("~data.actions", "~data.actions, buttons by categoryId", "notification.actions"),
    "push.richContent": ("notification.image", "fcm_options.image", "notification.image"),
    "push.mutableContent": ("", "aps.mutable-content", ""),
    "push.contentAvailable": ("", "aps.content-available", ""),
    "push._contentAvailable": ("", "aps.content-available", ""),
    **{f"push.android.{name}": (where, "", "") for name, where in ANDROID.items()},
    **{f"push.apns.{name}": ("", where, "") for name, where in IPHONE.items()},
    **{f"push.web.{name}": ("", "", where) for name, where in WEB.items()},
}
"""By field of an event, what it is on each platform; `Service.fields` says how to read it."""
_KEYS_OF_OTHERS = CREDENTIALS._replace(
    means="FCM has no valid key for Apple's or the browsers' push service: renew it in Firebase."
)
CODES = {
    "UNREGISTERED": GONE,
    "SENDER_ID_MISMATCH": OTHER_APP._replace(means="This token belongs to another Firebase project."),
    "INVALID_ARGUMENT": Code(
        "FCM answered that the token or the message is malformed.",
        "`invalid` if FCM blames the token, else `failed`",
        "read the message",
    ),
    "THIRD_PARTY_AUTH_ERROR": _KEYS_OF_OTHERS,
    "APNS_AUTH_ERROR": _KEYS_OF_OTHERS,
    "UNAUTHENTICATED": CREDENTIALS,
    "PERMISSION_DENIED": CREDENTIALS,
    "QUOTA_EXCEEDED": THROTTLED._replace(is_outage=True),
    "UNAVAILABLE": OUTAGE,
    "INTERNAL": OUTAGE,
    "ReservedDataKey": Code("The data of the push has a key that the push service reserves."),
    **CONNECTION_CODES,
}
TOKEN = Token(
    "FCM's registration token",
    "the registration token of Firebase",
    "`platform`: `android`, `ios` or `web`; rate and breaker are apart for each",
    r"(?!Expo(nent)?PushToken)[!-~]+",
    "token must be an FCM registration token: printable ASCII characters without blanks, and not Expo's",
)
SERVICE = Service("fcm", SENDING, ("android", "ios", "web"), TOKEN, part="platform", fields=FIELDS, codes=CODES)
