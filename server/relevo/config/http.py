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
        "The address on which HTTP is served; the default is for this machine only.", "127.0.0.1"
    )
    http_port: Annotated[int, between(0, 65_535)] = everyday(
        "The port on which HTTP is served, 0 for any that is free; without DATABASE_URL the next free one from it on.",
        8080,
    )
    http_open_registration: Project | None = everyday(
        "The project in which phones may register themselves over HTTP without token or signature, without an owner."
    )
    http_signing_keys_file: SecretFile | None = everyday(
        "A file of mode 600 with the keys by which the app's server signs for phones, as JSON: secret (base64) and "
        "maybe project, by name."
    )
    http_cors_origins: Annotated[Names, AfterValidator(_origins)] | None = everyday(
        "The web origins whose pages may call, separated by commas, such as https://app.example; without it none."
    )
    https_proxy: ProxyAddress | None = everyday(
        "The HTTP proxy through which https addresses are reached: the push service, sources, S3."
    )
    http_proxy: ProxyAddress | None = tuning("The HTTP proxy through which http addresses are reached.")
    no_proxy: Names | None = tuning(
        "What is reached without a proxy, as loopback is: names with their subdomains, addresses, networks, or *, "
        "separated by commas."
    )
    http_enabled: bool = tuning("Whether `relevo run` serves HTTP, too; `relevo serve` does it alone.", True)
    metrics_port: Annotated[int | None, between(0, 65_535)] = tuning(
        "A port of its own for /metrics, without a token, on HTTP_HOST; without it /metrics needs a viewer's token."
    )
    http_rate_per_second: Annotated[int, between(0, 100_000)] = tuning(
        "How many requests a second one caller may make of one replica, twice that at once; 0 lifts the limit. Callers "
        "without proof share the budget of their address, and each of their requests counts four times.",
        200,
    )
    http_pool_size: Annotated[int, between(1, 50)] = tuning(
        "Connections to the database that serving HTTP may open, beside those of DATABASE_MAX_CONNECTIONS; "
        "/health/ready has one more of its own.",
        4,
    )
    http_session_hours: Annotated[int, between(1, 720)] = tuning(
        "How many hours after its login a session of the dashboard ends, whether or not it is used.", 12
    )
    http_session_idle_minutes: Annotated[int, between(1, 43_200)] = tuning(
        "After how many minutes without use a session of the dashboard ends; a page that renews itself is no use.", 480
    )
    http_proof_minutes: Annotated[int, between(1, 43_200)] = tuning(
        "For how many minutes after a login, or after the token was entered again, the dashboard does grave actions "
        "without asking for the token: redrive, release, cancel, send.",
        15,
    )
    http_allow_private: bool = tuning(
        "Whether sources and webhooks may lead to private, loopback or link-local addresses.", False
    )
    http_pool_wait_ms: Annotated[int, between(10, MINUTE)] = expert(
        "How long a request may wait for one of these before it is answered 503, in milliseconds.", 2 * SECOND
    )
    http_max_body_bytes: Annotated[int, between(1_000, 100_000_000)] = tuning(
        "How many bytes the body of a request may have.", 1_000_000
    )
    http_header_timeout_ms: Annotated[int, between(100, 5 * MINUTE)] = expert(
        "How long a caller may take for a request's headers, from its connection on, in milliseconds.", 10 * SECOND
    )
    http_body_timeout_ms: Annotated[int, between(100, 30 * MINUTE)] = expert(
        "How long a caller may take for a request's body, in milliseconds.", 30 * SECOND
    )
    http_max_connections: Annotated[int, between(1, 100_000)] = expert(
        "How many connections HTTP holds at most, three quarters of them from one address; a proxy in front is one "
        "address. It never takes more than five eighths of the files that the process may open (`ulimit -n`): the "
        "others are for sending and for PostgreSQL. Those that wait for their callers are closed first.",
        8_000,
    )
