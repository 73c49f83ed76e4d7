"""Libraries that one file of tests needs: each process of a run reads all files, and plays a few of them."""

from __future__ import annotations

import sys
from importlib.util import LazyLoader, find_spec, module_from_spec
from types import ModuleType


def later(name: str) -> ModuleType:
    """Return a module that is loaded when something of it is used."""
    if name in sys.modules:
        return sys.modules[name]
    spec = find_spec(name)
    assert spec is not None, f"there is no {name}"
    assert spec.loader is not None
    loader = spec.loader = LazyLoader(spec.loader)
    sys.modules[name] = module = module_from_spec(spec)
    loader.exec_module(module)
    return module
