"""Reads the settings from the environment and `.env`, and complains once about all that is wrong."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from dotenv.parser import parse_stream
from pydantic import SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import EnvSettingsSource

from relevo.config import relations
from relevo.config.kinds import Address, ProxyAddress
from relevo.config.outbox import PUSH_CONNECTIONS
from relevo.config.setting import bounds_of
from relevo.config.settings import Origin, Settings, fields_of
from relevo.core.errors import ConfigError
from relevo.core.logs import scrub

ENV_FILE = Path(".env")
_MAX_QUOTED = 100
_ELSEWHERE = {
    "OUTBOX_WORKER_POLL_MS": "DISPATCH_INTERVAL_MINUTES",
    "OUTBOX_WORKER_BATCH_SIZE": "OUTBOX_BATCH_SIZE",
    "OUTBOX_WORKER_MAX_ATTEMPTS": "OUTBOX_MAX_ATTEMPTS",
    "OUTBOX_WORKER_PROCESSING_TIMEOUT_MS": "OUTBOX_LEASE_DURATION_MS",
    "OUTBOX_WORKER_RETRY_BASE_MS": "OUTBOX_RETRY_BASE_MS",
    "OUTBOX_WORKER_RETRY_MAX_MS": "OUTBOX_RETRY_MAX_MS",
}
"""Settings of other outbox workers, with the name of the same setting here."""
_NOWHERE = {
    "PDF_RENDER_CONCURRENCY": "Relevo renders no documents: it sends pushes",
    "WORKER_API_BASE_URL": "workers speak to the database, and need no API",
    "WORKER_API_SERVICE_TOKEN": "workers speak to the database; `relevo token make` makes tokens for HTTP",
}
"""Settings of other outbox workers that Relevo does not need, with the reason."""
_FIXED = {
    "FANOUT_INTERVAL_MINUTES": "DISPATCH_INTERVAL_MINUTES",
    "FOLDER_INTERVAL_MINUTES": "WORKER_INTERVAL_MINUTES",
    "HTTP_MAX_CONNECTIONS_PER_ADDRESS": "three quarters of HTTP_MAX_CONNECTIONS",
    "HTTP_MAX_HEADER_BYTES": "32768",
    "OUTBOX_SUSPECT_LAPSES": "2, or half of OUTBOX_POISON_LAPSES",
    "PARTITIONS_AHEAD_MONTHS": "2",
    "PUSH_BRAKE_MIN_ANSWERS": "50",
    "PUSH_BRAKE_PERCENT": "20",
    "PUSH_BRAKE_WINDOW_MS": "600000",
    "PUSH_BREAKER_PAUSE_MAX_MS": "900000",
    "PUSH_BREAKER_PAUSE_MS": "30000",
    "PUSH_CONNECT_TIMEOUT_MS": "3000, or PUSH_REQUEST_TIMEOUT_MS",
    "PUSH_CREDENTIAL_INSTALLATIONS": "5",
    "PUSH_CREDENTIAL_PERCENT": "80",
    "PUSH_CREDENTIAL_WINDOW_MS": "3600000",
    "PUSH_RATE_RECOVERY_MS": "300000",
    "PUSH_RUNAWAY_FACTOR": "2",
    "PUSH_RUNAWAY_REPEATS": "10",
    "RECEIPT_GIVE_UP_MS": "86400000",
    "WORKER_MISFIRE_GRACE_MS": "3600000",
}
"""Settings of versions up to 0.3, with their present names."""


def load(
    environ: Mapping[str, str] | None = None,
    env_file: Path | None = ENV_FILE,
    *,
    cycles: Callable[[], Collection[str]] = tuple,
) -> Settings:
    """Read, check and freeze the settings, or complain once about all that is wrong.

    `cycles` names the only ones there are, where that is known: whoever brings cycles of its own leaves it out.
    """
    environ = os.environ if environ is None else environ
    in_file, problems = _read_env_file(env_file)
    from_file, from_environ = _ours(in_file), _ours(environ)
    values: dict[str, Any] = {**from_file, **from_environ}
    origins: dict[str, Origin] = {**dict.fromkeys(from_file, ".env"), **dict.fromkeys(from_environ, "environment")}
    wrong = _wrong(values)
    settings = Settings(
        **{name: value for name, value in values.items() if name not in wrong},
        origins=origins,
        warnings=(*_strangers({**in_file, **environ}), *_lowered(values)),
    )
    problems += [_complaint(name, wrong[name], origins) for name in values if name in wrong]
    problems += [
        _complaint(names[0], text, origins)
        for names, text in relations.complaints(settings, cycles).items()
        if wrong.keys().isdisjoint(names)
    ]
    if problems:
        raise _error(problems)
    return settings


def environment(**more: str) -> dict[str, str]:
    """Return this process's environment with some more in it, for a program we start."""
    return {**os.environ, **more}


def _read_env_file(path: Path | None) -> tuple[dict[str, str], list[str]]:
    """Return what the file holds, and a complaint for each line that cannot be read.

    The library's own reader would skip such a line, and fill in what looks like a variable in a password.
    """
    if path is None:
        return {}, []
    try:
        with path.open(encoding="utf-8-sig") as file:
            bindings = list(parse_stream(file))
    except FileNotFoundError:
        return {}, []
    except (OSError, UnicodeDecodeError) as error:
        return {}, [f"{path} must be a readable text file, got {type(error).__name__}"]
    broken = [each.original.line for each in bindings if each.error or (each.key and each.value is None)]
    values = {each.key: each.value for each in bindings if each.key and each.value is not None}
    return values, [f"{path} line {line} must be NAME=value" for line in broken]


def _ours(variables: Mapping[str, str]) -> dict[str, Any]:
    """Return our settings among the variables: small letters will do, capitals win, an empty value counts as unset."""
    known = fields_of(Settings)
    ours = {
        name.lower(): value.strip()
        for name, value in sorted(variables.items(), reverse=True)
        if name.lower() in known and value.strip()
    }
    if not ours:  # the library looks at every setting, whatever there is
        return {}
    source = EnvSettingsSource(Settings)
    source.env_vars = ours
    return source()


def _wrong(values: dict[str, Any]) -> dict[str, str]:
    """Return what is wrong with each value that does not fit its setting."""
    try:
        Settings(**values)
    except ValidationError as refused:
        errors = refused.errors(include_url=False)
    else:
        return {}
    # Defaults are right by themselves; they fail only along with the setting they refer to.
    found = {str(each["loc"][0]): each.get("ctx", {}).get("error") for each in errors}
    return {name: _explain(name, error, values[name]) for name, error in found.items() if name in values}


def _explain(name: str, reason: ValueError | None, value: str) -> str:
    field = fields_of(Settings)[name]
    wanted = str(reason) if isinstance(reason, ValueError) else f"must be {_wanted(field, value)}"
    is_told = not _is_secret(field) and not value.lstrip().startswith("{")  # what belongs into a file of secrets
    got = value if _is_whole(value) else repr(scrub(value)[:_MAX_QUOTED])
    return f"{wanted}, got {got}" if is_told else wanted


def _wanted(field: FieldInfo, value: str) -> str:
    if bounds := bounds_of(field):
        whole = "" if _is_whole(value) else "a whole number "
        return f"{whole}between {bounds[0]} and {bounds[1]}"
    if field.annotation is bool:
        return "true or false"
    choices = [str(each) for each in get_args(field.annotation) if isinstance(each, str)]
    return f"one of {', '.join(choices)}" if choices else "text"


def _is_secret(field: FieldInfo) -> bool:
    return bool({field.annotation, *get_args(field.annotation)} & {Address, ProxyAddress, SecretStr})


def _is_whole(value: str) -> bool:
    return len(value) <= _MAX_QUOTED and re.fullmatch(r"[+-]?\d+", value) is not None


def _complaint(name: str, text: str, origins: Mapping[str, Origin]) -> str:
    return f"{name.upper()} {text}{' (in .env)' if origins.get(name) == '.env' else ''}"


def _error(problems: Sequence[str]) -> ConfigError:
    if len(problems) == 1:
        return ConfigError(f"{problems[0]}.", hint="Change it in the environment or in .env.")
    listed = "".join(f"\n- {problem}." for problem in problems)
    return ConfigError(f"{len(problems)} settings are wrong in the environment or in .env:{listed}")


def _strangers(names: Mapping[str, str]) -> tuple[str, ...]:
    """Warn of variables that are nearly ours: they have no effect."""
    ours = [name.upper() for name in fields_of(Settings)]
    families = {name.partition("_")[0] for name in ours}
    warnings = []
    for name in sorted(names):
        if why := _NOWHERE.get(name.upper()):
            warnings.append(f"{name} has no effect: {why}.")
        if name.upper() in ours or name.upper().partition("_")[0] not in families or why:
            continue
        if fixed := _FIXED.get(name.upper()):
            warnings.append(f"{name} is no setting any more and is ignored; it is always {fixed}.")
        elif ours_is := _ELSEWHERE.get(name.upper()):
            warnings.append(f"{name} has no effect; here it is {ours_is}.")
        elif near := difflib.get_close_matches(name.upper(), ours, n=1, cutoff=0.85):
            warnings.append(f"{name} has no effect; did you mean {near[0]}?")
    return tuple(warnings)


def _lowered(values: Mapping[str, str]) -> tuple[str, ...]:
    """Name the settings whose effect is less than was set."""
    given = values.get("outbox_concurrency", "0")
    if not _is_whole(given) or int(given) <= PUSH_CONNECTIONS:
        return ()
    return (
        f"OUTBOX_CONCURRENCY is {given} and means {PUSH_CONNECTIONS}: a push service bears no more for one project.",
    )
