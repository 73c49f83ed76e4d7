"""Pauses the garbage collector while a command loads: nothing of that is garbage. It is imported first."""

from __future__ import annotations

import gc

gc.disable()  # until all is loaded
