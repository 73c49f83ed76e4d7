"""Which proxy leads where."""

from __future__ import annotations

import pytest

from relevo.core.proxies import Proxies

PLAIN, SECURE = "http://plain:3128", "http://secure:3128"


@pytest.mark.parametrize(
    ("url", "direct", "proxy"),
    [
        ("https://exp.host/api", "", SECURE),
        ("http://exp.host/api", "", PLAIN),
        ("https://exp.host", "exp.host", None),
        ("https://exp.host", "EXP.host", None),
        ("https://exp.host.", "exp.host", None),
        ("https://api.exp.host", "exp.host", None),
        ("https://api.exp.host", ".exp.host", None),
        ("https://api.exp.host", "*.exp.host", None),
        ("https://exp.host", ".exp.host", None),
        ("https://notexp.host", "exp.host", SECURE),
        ("https://exp.host", "other,exp.host", None),
        ("https://exp.host", "*", None),
        ("https://exp.host", ".", SECURE),
        ("https://exp.host", "exp.host:443", None),
        ("https://exp.host:8443", "exp.host:443", SECURE),
        ("http://exp.host", "exp.host:80", None),
        ("https://10.1.2.3", "10.0.0.0/8", None),
        ("https://11.1.2.3", "10.0.0.0/8", SECURE),
        ("https://10.1.2.3", "10.1.2.3", None),
        ("https://10.1.2.3", "10.1.2.3:8443", SECURE),
        ("https://10.1.2.3", "exp.host", SECURE),
        ("https://exp.host", "10.0.0.0/8", SECURE),
        ("https://[fd00::1]", "fd00::/8", None),
        ("https://[fd00::1]", "fd00::1", None),
        ("https://[fd00::1]:444", "[fd00::1]:443", SECURE),
        ("https://[fd00::1]:444", "[fd00::1]:444", None),
        ("http://127.0.0.1:9000", "", None),
        ("http://[::1]:9000", "", None),
        ("http://localhost:9000", "", None),
    ],
)
def test_by_scheme_unless_it_is_named_or_loopback(url: str, direct: str, proxy: str | None) -> None:
    """http and https have a proxy each; names stand for their subdomains, networks for their addresses."""
    named = tuple(direct.split(",")) if direct else ()
    assert Proxies(PLAIN, SECURE, named).for_url(url) == proxy


def test_without_a_proxy_everything_is_reached_directly() -> None:
    """One scheme's proxy is not the other's."""
    assert Proxies().for_url("https://exp.host") is None
    assert Proxies(http=PLAIN).for_url("https://exp.host") is None
    assert Proxies(https=SECURE).for_url("http://exp.host") is None
