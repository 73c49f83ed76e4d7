"""Every setting: its name, its meaning, its bounds. No other package reads the environment.

A file for each theme declares its settings; `settings` combines and lists them, `loading` reads them, `relations` says
which must fit together.
"""

from __future__ import annotations

import relevo.core.needs_server  # isort: skip # noqa: F401 ahead of all it needs

from relevo.config.loading import environment, load
from relevo.config.push import RECEIPT_GIVE_UP_MS
from relevo.config.setting import MINUTE, TIERS
from relevo.config.settings import SettingRow, Settings, describe
from relevo.config.sources import REJECT_ATTEMPTS

__all__ = [
    "MINUTE",
    "RECEIPT_GIVE_UP_MS",
    "REJECT_ATTEMPTS",
    "TIERS",
    "SettingRow",
    "Settings",
    "describe",
    "environment",
    "load",
]
