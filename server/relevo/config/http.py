"""HTTP: where it is served, who may call, how much at once; and the proxies through which the world is reached."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

from relevo.config.kinds import Host, Names, Project, ProxyAddress, SecretFile
from relevo.config.setting import MINUTE, SECOND, Theme, between, everyday, expert, tuning


def _origins(names: tuple[str, ...]) -> tuple[str, ...]:
    if not all(re.fullmatch(r"https?://[A-Za-z0-9.-]+(:\d{1,5})?", name) for name in names):
        raise ValueError("must be web origins such as https://app.example, separated by commas")
    return names


class Http(Theme):
    """HTTP, metrics and proxies."""

    http_host: Host = everyday(
        "The address on which Relevo serves HTTP. The default is for this machine only.", "127.0.0.1"
    )
    http_port: Annotated[int, between(0, 65_535)] = everyday(
        "The port on which Relevo serves HTTP; 0 takes any free port. Without DATABASE_URL Relevo takes the next "
        "free port from this one on.",
        8080,
    )
    http_open_registration: Project | None = everyday(
        "The project in which phones may register over HTTP without token or signature, and without an owner."
    )
    http_signing_keys_file: SecretFile | None = everyday(
        "A file of mode 600 with the keys by which your app's server signs for phones, as JSON by name: secret "
        "(base64), and project if only one may use it."
    )
    http_cors_origins: Annotated[Names, AfterValidator(_origins)] | None = everyday(
        "The web origins whose pages may call Relevo (comma-separated), such as https://app.example. Default: none."
    )
    https_proxy: ProxyAddress | None = everyday("The HTTP proxy for https addresses: push services, sources, S3.")
    http_proxy: ProxyAddress | None = tuning("The HTTP proxy for http addresses.")
    no_proxy: Names | None = tuning(
        "Hosts that Relevo reaches without a proxy, beside loopback (comma-separated): names with their "
        "subdomains, addresses, networks, or *."
    )
    http_enabled: bool = tuning("Whether `relevo run` serves HTTP, too; `relevo serve` serves only HTTP.", True)
    metrics_port: Annotated[int | None, between(0, 65_535)] = tuning(
        "A port on HTTP_HOST for /metrics without a token. On HTTP_PORT /metrics needs a viewer's token."
    )
    http_rate_per_second: Annotated[int, between(0, 100_000)] = tuning(
        "How many requests a second one caller may make to one replica, and twice that at once; 0 removes the "
        "limit. Callers without proof share the budget of their address, and each of their requests counts four "
        "times.",
        200,
    )
    http_pool_size: Annotated[int, between(1, 50)] = tuning(
        "How many database connections HTTP may open, beside those of DATABASE_MAX_CONNECTIONS; /health/ready has "
        "one more.",
        4,
    )
    http_session_hours: Annotated[int, between(1, 720)] = tuning(
        "How many hours after its login a session of the dashboard ends, used or not.", 12
    )
    http_session_idle_minutes: Annotated[int, between(1, 43_200)] = tuning(
        "After how many minutes without use a session of the dashboard ends. A page that refreshes itself does "
        "not count as use.",
        480,
    )
    http_proof_minutes: Annotated[int, between(1, 43_200)] = tuning(
        "How many minutes after a login, or after the token was entered again, the dashboard does grave actions "
        "(redrive, release, cancel, send) without asking for the token.",
        15,
    )
    http_allow_private: bool = tuning(
        "Whether Relevo may connect sources and webhooks to private, loopback or link-local addresses.", False
    )
    http_pool_wait_ms: Annotated[int, between(10, MINUTE)] = expert(
        "How long a request may wait for a connection of HTTP_POOL_SIZE before Relevo answers 503, in milliseconds.",
        2 * SECOND,
    )
    http_max_body_bytes: Annotated[int, between(1_000, 100_000_000)] = tuning(
        "How many bytes the body of a request may have.", 1_000_000
    )
    http_header_timeout_ms: Annotated[int, between(100, 5 * MINUTE)] = expert(
        "How long after connecting a caller may take to send a request's headers, in milliseconds.", 10 * SECOND
    )
    http_body_timeout_ms: Annotated[int, between(100, 30 * MINUTE)] = expert(
        "How long a caller may take to send a request's body, in milliseconds.", 30 * SECOND
    )
    http_max_connections: Annotated[int, between(1, 100_000)] = expert(
        "The most HTTP connections, three quarters of them from one address; a proxy in front is one address. "
        "HTTP takes at most five eighths of the files that the process may open (`ulimit -n`): the others are for "
        "sending and for PostgreSQL. Relevo closes connections that wait for their callers first.",
        8_000,
    )
