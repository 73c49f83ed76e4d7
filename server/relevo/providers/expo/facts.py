"""Facts about Expo that need no request."""

from __future__ import annotations

from relevo.providers.facts import (
    APP_GONE,
    OWN_PROBLEM,
    SLOWER,
    TOO_MANY_FOR_PHONE,
    WRONG_CREDENTIALS,
    Code,
    ProviderFacts,
    Service,
    Token,
)

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
_IN_DOUBT = "tries again, or `unknown` at most once: the push service may have accepted the push"
_APP_KEYS = Code(
    WRONG_CREDENTIALS,
    "tries again; opens the breaker if [several owners](promises.md#one-phones-trouble-is-its-own) met it",
    "renew the FCM or APNs credentials in Expo",
)
CODES = {
    "DeviceNotRegistered": Code(
        APP_GONE,
        "`invalid`, disables the token; `failed` while [too many](runbook.md#too-many-unregistered-tokens) are "
        "reported as gone",
        "nothing; then check the credentials",
    ),
    "MessageTooBig": Code(
        "The message is too long: the limit is 4,096 bytes.", "`failed`", "send less than 4096 bytes"
    ),
    "MessageRateExceeded": Code(TOO_MANY_FOR_PHONE, "tries again later", "send less often to this phone"),
    "MismatchSenderId": _APP_KEYS,
    "InvalidCredentials": _APP_KEYS,
    "InvalidProviderToken": _APP_KEYS,
    "ExpoError": Code(OWN_PROBLEM, "tries again"),
    "DeveloperError": Code("The push service did not understand the message.", "`failed`", "read the message"),
    "UNAUTHORIZED": Code(
        "The push service did not accept our access token.",
        "the breaker opens",
        "check `EXPO_ACCESS_TOKEN`",
        ", or HTTP 401 and 403",
    ),
    "TOO_MANY_REQUESTS": Code(SLOWER, "halves the rate, waits", aside=", or HTTP 429"),
    "PUSH_TOO_MANY_EXPERIENCE_IDS": Code(
        "One request held phones of several projects; Relevo now sends to each project by its own request.",
        "sorts the phones by their projects, sends again; moves a phone to its project if the [rules of projects]"
        "(security-and-privacy.md#projects) allow that, else sends by the project that the phone is registered in",
        "give each installation its `project`",
    ),
    "SERVICE_UNAVAILABLE": Code("The push service is unavailable (503).", _IN_DOUBT),
    "BAD_GATEWAY": Code(
        "The push service failed: its gateway got no answer (502).",
        _IN_DOUBT,
    ),
    "GATEWAY_TIMEOUT": Code("The push service failed: its gateway got no answer in time (504).", _IN_DOUBT),
    "INTERNAL_SERVER_ERROR": Code(
        "The push service failed with an internal error (500).",
        _IN_DOUBT,
        aside=", or `HTTP_` and a status from 500 on",
    ),
    "UnreadableAnswer": Code("The answer of the push service could not be read.", _IN_DOUBT, "report it"),
    "Unknown": Code(
        "The push service answered with an error that Relevo does not know.",
        "tries again, keeps the raw answer",
        "report it",
    ),
    "TicketWithoutId": Code("The push service accepted the push without returning a ticket."),
    "PUSH_TOO_MANY_NOTIFICATIONS": Code("The push service allows fewer pushes in one request."),
    "PUSH_TOO_MANY_RECEIPTS": Code("The push service allows fewer receipts in one request."),
    "VALIDATION_ERROR": Code("The push service did not understand the request."),
    "FORBIDDEN": Code("The push service did not allow it."),
}
TOKEN = Token(
    "Expo's",
    "`ExponentPushToken[…]`",
    "",
    r"Expo(nent)?PushToken\[[^\[\] \t\n\r\f\v]{1,150}\]|[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}",
    "token must look like ExponentPushToken[...], ExpoPushToken[...] or a UUID",
)
SERVICE = Service("expo", SENDING, ("ios", "android"), TOKEN, fields=FIELDS, codes=CODES)
