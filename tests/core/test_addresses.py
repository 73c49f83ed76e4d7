"""By what callers are counted that have proven nothing: the address of IPv4, the subscriber's network of IPv6."""

from __future__ import annotations

import pytest

from relevo.core.addresses import subscriber_of
from relevo.http.dashboard.refusals import stranger


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("nowhere", "nowhere"),
        ("", ""),
    ],
)
def test_a_subscriber_is_counted_once(address: str, counted: str) -> None:
    """All addresses of one IPv6 network count together; IPv4 that came through a socket of IPv6 does not."""
    assert subscriber_of(address) == counted


def test_refusals_share_the_room_of_their_network() -> None:
    """The audit log names and groups strangers by the same rule, also behind a socket of IPv6."""
    assert stranger("::ffff:192.0.2.7") == stranger("192.0.2.7")
    assert stranger("::ffff:192.0.2.7").group == "192.0.2.0/24"
    assert stranger("fe80::1%eth0").group == "fe80::/48"
    assert stranger("2001:db8:1:2::9").name == "nobody, from 2001:db8:1:2::/64"
