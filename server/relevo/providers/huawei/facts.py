"""Facts about Huawei Push Kit that need no request."""

from __future__ import annotations

from relevo.providers.facts import Code, ProviderFacts, Service, Token
from relevo.providers.http2.facts import CODES as CONNECTION_CODES
from relevo.providers.http2.facts import CREDENTIALS, GONE, OTHER_APP, OUTAGE, THROTTLED, TOO_LARGE

SENDING = ProviderFacts(
    "Huawei Push Kit",
    rate_per_s=1_000,  # to begin with: Huawei tells each app its own in AppGallery Connect
    platforms=("android", "unknown"),
)
ANDROID = {
    "color": "notification.color",
    "ticker": "notification.ticker",
    "clickAction": "notification.click_action",
    "visibility": "notification.visibility",
    "titleLocKey": "notification.title_loc_key",
    "titleLocArgs": "notification.title_loc_args",
    "bodyLocKey": "notification.body_loc_key",
    "bodyLocArgs": "notification.body_loc_args",
}
"""The fields of Android that it has, too."""
FIELDS = {
    "title": ("notification.title",),
    "body": ("notification.body",),
    "data": ("data",),
    "no title and no body": ("data alone",),
    "ttl_s, deadline": ("ttl",),
    "push.priority, lane": ("urgency",),
    "collapse": ("notification.tag",),
    "push.sound": ("notification.sound",),
    "push.badge": ("notification.badge",),
    "push.channelId": ("notification.channel_id",),
    "push.tag": ("notification.tag",),
    "push.icon": ("notification.icon",),
    "push.image": ("notification.image",),
    "push.link": ("data.url",),
    "push.actions": ("~data.actions",),
    "push.richContent": ("notification.image",),
    **{f"push.android.{name}": (where,) for name, where in ANDROID.items()},
}
"""By field of an event, what it is; `Service.fields` says how to read it."""
CODES = {
    "80300007": GONE,
    "80100000": GONE,
    "80300002": OTHER_APP._replace(means="Push Kit is not switched on for this app, or the app is another one."),
    "80200001": CREDENTIALS,
    "80200003": CREDENTIALS,
    "80300008": TOO_LARGE,
    "80100001": Code("The push service refused a part of the message.", "`failed`", "read the message"),
    "80100003": Code("The push service refused the format of the message.", "`failed`", "read the message"),
    "80100016": Code(
        "The push service refused the content of the message as sensitive.", "`failed`", "change the text"
    ),
    "HTTP_503": THROTTLED._replace(means="", aside=" of Huawei"),
    "81000001": OUTAGE,
    **CONNECTION_CODES,
}
TOKEN = Token(
    "Huawei's push token",
    "the push token of HMS Core",
    "",
    r"(?!Expo(nent)?PushToken)[!-~]+",
    "token must be a push token of HMS Core: printable ASCII characters without blanks, and not Expo's",
)
SERVICE = Service("huawei", SENDING, ("android",), TOKEN, fields=FIELDS, codes=CODES)
