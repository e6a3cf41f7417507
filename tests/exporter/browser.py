"""A browser for tests: this machine's, else the distribution's, unpacked in a folder of ours."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import archive
from stack import stack_folder

NAMES = ("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome")
PACKAGES = ("chromium-headless-shell", "fonts-dejavu-core")
"""Of Debian; about 110 MB to fetch, 300 MB unpacked. Ubuntu has a browser as a snap alone."""


@dataclass(frozen=True)
class Browser:
    """A Chromium, and the environment that it finds its libraries and fonts in."""

    program: Path
    environment: Mapping[str, str]


def find() -> Browser:
    """One from PATH, else one unpacked below `stack_folder()`. Raises StackError."""
    if (found := next(filter(None, map(shutil.which, NAMES)), None)) is not None:
        return Browser(Path(found), os.environ)
    root = archive.fetch_missing(stack_folder() / "chromium", PACKAGES)
    libraries = sorted({str(path.parent) for path in (root / "usr/lib").rglob("*.so*")})
    settings = {
        "LD_LIBRARY_PATH": os.pathsep.join(libraries),
        "XDG_DATA_HOME": str(root / "usr/share"),  # its `fonts` are looked at, too
    }
    if (fonts := root / "etc/fonts").is_dir():
        settings["FONTCONFIG_PATH"] = str(fonts)
    return Browser(root / "usr/lib/chromium/chromium-headless-shell", os.environ | settings)
