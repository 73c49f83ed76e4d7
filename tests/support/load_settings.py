"""Settings of some variables alone, and what is said of them."""

from __future__ import annotations

import pytest

from relevo import config
from relevo.core.errors import ConfigError


def load(**environ: str) -> config.Settings:
    """Load from these variables alone."""
    return config.load(environ, env_file=None)


def complaint(**environ: str) -> str:
    """Return the complaint these variables cause."""
    with pytest.raises(ConfigError) as caught:
        load(**environ)
    return str(caught.value)


def row(settings: config.Settings, name: str) -> config.SettingRow:
    """Return the described setting of that name."""
    return next(each for each in config.describe(settings) if each.name == name)
