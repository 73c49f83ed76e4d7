"""Errors under the name by which the guide of 0.3 imported them; it leaves in 0.6, as `relevo` has what apps use."""

from __future__ import annotations

import warnings
from typing import Any

from relevo.core import errors


def __getattr__(name: str) -> Any:
    """Return an error of Relevo's, and say where it is today."""
    found = getattr(errors, name)
    if not name.startswith("_"):
        words = f"relevo.errors leaves in 0.6: write `from relevo import {name}`"
        warnings.warn(words, DeprecationWarning, stacklevel=2)
    return found
