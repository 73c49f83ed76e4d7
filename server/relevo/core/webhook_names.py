"""Names of webhooks as installations have them: a project's own carry the project, so that two may use one name."""

from __future__ import annotations

_AFTER = "/"


def prefix_of(project: str | None) -> str:
    """Return how the names of a project's webhooks begin where installations have them."""
    return f"{project or ''}{_AFTER}"


def name_in_project(project: str, name: str) -> str:
    """Return how an installation of a project has a name of WEBHOOKS_FILE."""
    return name if name.startswith(prefix_of(project)) else prefix_of(project) + name


def names_meant(stored: str) -> list[str]:
    """Return which names of WEBHOOKS_FILE an installation may mean, whatever its project is."""
    parts = stored.split(_AFTER)
    return [_AFTER.join(parts[number:]) for number in range(len(parts))]
