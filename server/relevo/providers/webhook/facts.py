"""Facts about webhooks."""

from __future__ import annotations

from relevo.providers.facts import Code

CODES = {
    "UnknownAddress": Code("There is no webhook of this name.", "`failed`: no such name in `WEBHOOKS_FILE`"),
    "AddressOfAnotherProject": Code(
        "This webhook belongs to another project.", "`failed`: `WEBHOOKS_FILE` gives this name to another project"
    ),
    "RefusedAddress": Code(
        "The webhook, or the browser's push service, leads to a private address.",
        "`failed`: it leads to a private address, which `HTTP_ALLOW_PRIVATE=true` allows, or is not https",
    ),
    "HTTP_410": Code("The webhook's server accepts no more messages.", "`failed`: it refuses all further messages"),
    "HTTP_": Code(does="tried again; redirects are not followed", aside=" and another status"),
}
