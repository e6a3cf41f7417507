"""Another suite of the distribution than this machine's, read by apt from a folder of our own.

apt gets it on its command line only, so the machine does not change.
"""

from __future__ import annotations

import platform
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
ROLES = frozenset({"oldstable", "stable", "testing", "unstable", "sid", "devel"})
"""Names of suites that are those of no release."""
NAME = re.compile(r"[a-z][a-z0-9-]*")
TARGETS = ("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages")


class SuiteError(Exception):
    """It is not known where the distribution's suites are to be had."""


def checked(name: str) -> str:
    """`name`, if a suite can be called so: it becomes a line of a file, and a folder.

    Raises SuiteError.
    """
    if NAME.fullmatch(name) is None:
        raise SuiteError(f"no suite is called {name!r}")
    return name


def read_archive() -> str:
    """Where this machine gets the packages of its own distribution from.

    Raises SuiteError when its sources name no such place.
    """
    try:
        output = subprocess.run(TARGETS, capture_output=True, text=True, check=True).stdout
        codename = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    except (OSError, subprocess.SubprocessError) as error:
        raise SuiteError(f"the sources of its packages cannot be read: {error}") from error
    return parse_archive(output.splitlines(), codename)


def parse_archive(lines: Iterable[str], codename: str) -> str:
    """The first place that offers `codename` or a suite by its role, of `TARGETS`' lines.

    Raises SuiteError.
    """
    for line in lines:
        place, _, release = line.partition(" ")
        if release == codename or release in ROLES:
            return place
    raise SuiteError(f"no source of packages of this machine offers {codename or 'its release'}")


def write(suite: str, archive: str, folder: Path) -> list[str]:
    """Fill `folder` with what apt needs to read `suite` alone; options that make it use that."""
    for name in ("lists/partial", "archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    signed = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
    sources = folder / "sources.list"
    sources.write_text(f"deb {signed}{archive} {checked(suite)} main\n", encoding="utf-8")
    settings = (
        f"Dir::Etc::sourcelist={sources}",
        "Dir::Etc::sourceparts=-",
        "Dir::Etc::preferences=-",
        "Dir::Etc::preferencesparts=-",
        "APT::Default-Release=",
        f"Dir::State::lists={folder}/lists",
        f"Dir::Cache={folder}",
    )
    return [word for setting in settings for word in ("-o", setting)]
