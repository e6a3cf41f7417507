"""Where the files of the stack lie: rules, boards, examples, and the scripts that `up` runs.

In a wheel they are below this package (`force-include` in pyproject.toml); a clone has them at its
root.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from types import ModuleType


def shipped_folder() -> Path:
    """The folder that holds `deploy`, `rules`, `examples` and `grafana`."""
    inside = Path(str(files(__name__)))
    return inside if (inside / "deploy").is_dir() else inside.parents[2]


def load_script(name: str) -> ModuleType:
    """Imports a module of `deploy`, whose modules import each other by their bare names."""
    folder = str(shipped_folder() / "deploy")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return import_module(name)
