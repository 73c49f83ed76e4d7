"""Facts about APNs that need no request."""

from __future__ import annotations

from relevo.providers.facts import TOO_MANY_FOR_PHONE, Code, ProviderFacts, Service, Token
from relevo.providers.http2.facts import CODES as CONNECTION_CODES
from relevo.providers.http2.facts import CREDENTIALS, GONE, OTHER_APP, OUTAGE, THROTTLED, TOO_LARGE

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
"""Fields that no other platform has, as iPhones get them."""
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
_OTHER_ENVIRONMENT = CREDENTIALS._replace(means="The key belongs to Apple's other environment.")
CODES = {
    "Unregistered": GONE,
    "ExpiredToken": GONE,
    "BadDeviceToken": Code(
        "Apple does not know this token: it is wrong, or belongs to the other environment.",
        "as `DeviceNotRegistered`; never opens a breaker",
        "check the `environment` of the phones",
    ),
    "DeviceTokenNotForTopic": OTHER_APP._replace(means="The token belongs to an app other than the project's topic."),
    "PayloadTooLarge": TOO_LARGE,
    "InvalidProviderToken": CREDENTIALS,
    "ExpiredProviderToken": CREDENTIALS,
    "BadEnvironmentKeyIdInToken": _OTHER_ENVIRONMENT,
    "BadEnvironmentKeyInToken": _OTHER_ENVIRONMENT,
    "TooManyRequests": THROTTLED._replace(means=TOO_MANY_FOR_PHONE),
    "TooManyProviderTokenUpdates": THROTTLED,
    "InternalServerError": OUTAGE,
    "ServiceUnavailable": OUTAGE,
    "Shutdown": OUTAGE,
    "TopicDisallowed": Code("The key may not send to this app: check the topic."),
    "IdleTimeout": Code("The push service closed the connection before it accepted the push; nothing was sent."),
    **CONNECTION_CODES,
}
TOKEN = Token(
    "the device token of APNs in hexadecimal digits",
    "the device token in hexadecimal digits",
    "`environment`: `production` (if none is said) or `sandbox`, for builds that Xcode installs",
    r"([0-9A-Fa-f]{2})+",
    "token must be an APNs device token: an even number of hexadecimal digits",
)
SERVICE = Service("apns", SENDING, ("ios",), TOKEN, part="environment", fields=FIELDS, codes=CODES)
