"""A worker's allowance for a project now, and its reservation in the transaction that claims."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from relevo.database.pool import Connection
from relevo.delivery.projects.rate_and_breaker import Grant


@dataclass(frozen=True)
class Allowance:
    """A worker's allowance for a project now: how many pushes, on how many connections."""

    grant: Grant
    connections: int = 0
    troubled: bool = False
    """Whether the project failed lately, so that a success is news."""
    watched: bool = False
    """Whether credential faults were met lately, so that it is news who did not meet one."""
    braked: bool = False
    """Whether no token is disabled for now, so that somebody has to check whether the brake is to be released."""
    is_all: bool = False
    """Whether all that is due was granted, because that is little."""


TakeAll = Callable[[Connection, Allowance], object]
"""Claims, inside a transaction, all that is due in a lane."""
