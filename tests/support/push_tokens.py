"""Push tokens of each provider, good and bad."""

from __future__ import annotations

import json

POINT, SECRET = "BP" + "x" * 84 + "A", "_" * 21 + "A"  # as base64url: a point of P-256, 16 bytes


def subscription(endpoint: object = "https://push.example.com/a", p256dh: object = POINT, auth: object = SECRET) -> str:
    """Return a Web Push subscription as a browser writes it."""
    return json.dumps({"endpoint": endpoint, "expirationTime": None, "keys": {"p256dh": p256dh, "auth": auth}})


BAD_TOKENS = [
    ("fcm", "token must be an FCM registration token: printable ASCII characters without blanks, and not Expo's",
     "a b", "ñ", "ExponentPushToken[a]", " a"),
    ("fcm", "token must be text of 1 to 4096 bytes without control characters", "", "a" * 4097, "a\n", "a\x7f", 7, {"a": 1}),
    ("webhook", "token must be text of 1 to 4096 bytes without control characters", "", "ñ" * 2049, "a\n"),
    ("apns", "token must be an APNs device token: an even number of hexadecimal digits", "abc", "xy", "a b ", "ExpoPushToken[a]"),
    ("webpush", "token must be a Web Push subscription in JSON, with endpoint, keys.p256dh and keys.auth",
     "a", "{", "[]", "7", "null", '"a"', "{}", '{"endpoint": "https://a.b/c"}', '{"endpoint": "https://a.b/c", "keys": []}',
     '{"endpoint": "https://a.b/c", "keys": {"auth": "a"}}', "[" * 4000, subscription(None), subscription(p256dh=None)),
    ("webpush", "token must be text of 1 to 4096 bytes without control characters", subscription("https://a.b/" + "c" * 4000)),
    ("webpush", "token.endpoint must be an https address of at most 2048 characters",
     *(subscription(endpoint) for endpoint in (
         "", "a", "https:///a", "http://a.b/c", "ftp://a.b/c", "https://a b/c", "https://a@b.c/d", "https://-a.b/c", "https://a..b/c", "https://a.b/ c",
         'https://a.b/"', "https://a.b/ñ", "https://ñ.b/c", "https://a.b/\\", "https://a.b:123456/c", "https://a.b?c", "https://" + "a" * 64 + ".b/c",
         "http://127.0.0.2/a", "https://a.b/c\n", "https://a.b/" + "c" * 2048, "https://" + "a." * 126 + "bc/d", "https://[" + "a" * 252 + "]/b"))),
    ("webpush", "token.keys.p256dh must be a P-256 point: 65 bytes in base64url, the first of them 4",
     *(subscription(p256dh=key) for key in ("", "a", POINT[:-1], POINT + "A", "C" + POINT[1:], "BQ" + POINT[2:], POINT[:-1] + "B", "ñ" + POINT[1:]))),
    ("webpush", "token.keys.auth must be 16 bytes in base64url",
     *(subscription(auth=key) for key in ("", "a", SECRET + "A", SECRET[:-1] + "B", SECRET[:-2] + "ñA"))),
]  # fmt: skip
