"""Facts about Web Push that need no request."""

from __future__ import annotations

from relevo.providers.facts import WRONG_CREDENTIALS, Code, ProviderFacts, Service, Token
from relevo.providers.fcm.facts import WEB
from relevo.providers.http2.facts import CODES as CONNECTION_CODES
from relevo.providers.http2.facts import CREDENTIALS, GONE, OTHER_APP, OUTAGE, THROTTLED, TOO_LARGE

HOSTS = (
    *("fcm.googleapis.com", "updates.push.services.mozilla.com", "web.push.apple.com"),
    *(".push.apple.com", ".notify.windows.com"),
)
"""Of Chrome, Firefox, Safari and Edge; one that begins with a dot stands for all names below it."""
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
_OURS = " of Web Push"
CODES = {
    "SubscriptionGone": GONE._replace(means="The browser's subscription has ended: it has to subscribe anew."),
    "HTTP_403": OTHER_APP._replace(means="", aside=_OURS),
    "HTTP_413": TOO_LARGE._replace(means="", aside=_OURS),
    "HTTP_401": CREDENTIALS._replace(means="", aside=_OURS),
    "BadJwtToken": Code(WRONG_CREDENTIALS),
    "HTTP_429": THROTTLED._replace(means="", aside=_OURS),
    "HTTP_406": THROTTLED._replace(means="", aside=_OURS),
    **dict.fromkeys(("InternalServerError", "ServiceUnavailable", "Shutdown"), OUTAGE),  # of Apple's, for Safari
    "HostNotAllowed": Code(
        "The browser's push service is not allowed: see WEBPUSH_HOSTS.",
        "`failed`",
        "name the push service in `hosts` or `WEBPUSH_HOSTS`, if it is one",
    ),
    "NothingToShow": Code("It has neither a title nor a body, and a browser must show something."),
    **CONNECTION_CODES,
}
TOKEN = Token(
    "the JSON of a browser's push subscription, as text",
    "the JSON of the browser's subscription, as text: `JSON.stringify(subscription)`",
    "over HTTP its address must be at a known push service, or at one of its project's `hosts` or of `WEBPUSH_HOSTS`",
)
SERVICE = Service("webpush", SENDING, ("web",), TOKEN, part="host", fields=FIELDS, codes=CODES)
