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

    http_host: Host = everyday("The address for HTTP. The default is for this machine only.", "127.0.0.1")
    http_port: Annotated[int, between(0, 65_535)] = everyday(
        "The port for HTTP; 0: any free port. Without DATABASE_URL: the next free port from this one on.",
        8080,
    )
    http_open_registration: Project | None = everyday(
        "The project in which phones may register over HTTP without token, signature or owner."
    )
    http_signing_keys_file: SecretFile | None = everyday(
        "A file of mode 600 with the keys by which your app's server signs for phones, by name, as JSON: secret "
        "(base64), and the project if only one may use it."
    )
    http_cors_origins: Annotated[Names, AfterValidator(_origins)] | None = everyday(
        "Web origins whose pages may call Relevo (comma-separated), such as https://app.example. Default: none."
    )
    https_proxy: ProxyAddress | None = everyday("The HTTP proxy for https addresses: push services, sources, S3.")
    http_proxy: ProxyAddress | None = tuning("The HTTP proxy for http addresses.")
    no_proxy: Names | None = tuning(
        "Hosts that Relevo reaches without a proxy, beside loopback (comma-separated): names with their "
        "subdomains, addresses, networks, or *."
    )
    http_enabled: bool = tuning("Whether `relevo run` serves HTTP, too.", True)
    metrics_port: Annotated[int | None, between(0, 65_535)] = tuning(
        "A port on HTTP_HOST for /metrics without a token. On HTTP_PORT /metrics needs a viewer's token."
    )
    http_rate_per_second: Annotated[int, between(0, 100_000)] = tuning(
        "Requests a second that one caller may make to one replica, and twice that at once; 0 removes the limit. "
        "Callers without proof share the budget of their address; each of their requests counts four times.",
        200,
    )
    http_pool_size: Annotated[int, between(1, 50)] = tuning(
        "Database connections of HTTP, beside those of DATABASE_MAX_CONNECTIONS; /health/ready has one more.",
        4,
    )
    http_session_hours: Annotated[int, between(1, 720)] = tuning(
        "Hours after its login that a session of the dashboard ends, used or not.", 12
    )
    http_session_idle_minutes: Annotated[int, between(1, 43_200)] = tuning(
        "Minutes without use after which a session of the dashboard ends. A page that refreshes itself is no use.",
        480,
    )
    http_proof_minutes: Annotated[int, between(1, 43_200)] = tuning(
        "Minutes after a login, or after the token was entered again, in which the dashboard does grave actions "
        "(redrive, release, cancel, send) without asking for the token.",
        15,
    )
    http_allow_private: bool = tuning(
        "Whether sources and webhooks may be at private, loopback or link-local addresses.", False
    )
    http_pool_wait_ms: Annotated[int, between(10, MINUTE)] = expert(
        "How long a request may wait for a connection of HTTP_POOL_SIZE before Relevo answers 503.",
        2 * SECOND,
    )
    http_max_body_bytes: Annotated[int, between(1_000, 100_000_000)] = tuning(
        "The largest body of a request.", 1_000_000
    )
    http_header_timeout_ms: Annotated[int, between(100, 5 * MINUTE)] = expert(
        "How long after connecting a caller may take to send a request's headers.", 10 * SECOND
    )
    http_body_timeout_ms: Annotated[int, between(100, 30 * MINUTE)] = expert(
        "How long a caller may take to send a request's body.", 30 * SECOND
    )
    http_max_connections: Annotated[int, between(1, 100_000)] = expert(
        "The most HTTP connections, three quarters of them from one address; a proxy in front is one address. "
        "HTTP takes at most five eighths of the files that the process may open (`ulimit -n`): the others are for "
        "sending and PostgreSQL. Relevo first closes connections that wait for their callers.",
        8_000,
    )
