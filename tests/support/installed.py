"""By what the examples of the pages are run: the checkout, or an environment into which somebody installed Relevo."""

from __future__ import annotations

import os
import sys
from pathlib import Path

PYTHON = Path(os.environ.get("RELEVO_TEST_INSTALLED", sys.executable))
"""The Python that runs them; `make examples` names that of an environment with the wheel."""
IS_ANOTHER = "RELEVO_TEST_INSTALLED" in os.environ
RELEVO = PYTHON.with_name("relevo")
"""The command that belongs to it."""
