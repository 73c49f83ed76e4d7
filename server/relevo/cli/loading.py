"""Imported ahead of what a command loads: nothing of that is garbage, and to look for some takes time."""

from __future__ import annotations

import gc

gc.disable()  # until all is loaded
