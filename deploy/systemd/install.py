"""Installs the stack as systemd units, or removes it again.

Programs go to /opt/trainwarden, configuration to /etc/trainwarden, units to /etc/systemd/system.
Configuration that is there already stays as it is, also when the rest is removed. It
starts no unit.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from stack import PROJECT, StackError, find_binaries  # noqa: E402 - found by the line above

UNITS = (
    "trainwarden.target",
    "trainwarden-exporter.service",
    "trainwarden-remediator.service",
    "trainwarden-prometheus.service",
    "trainwarden-alertmanager.service",
)
RULES = ("alerts", "recording")
NEXT = """\
Installed. Now, or after you have written /etc/trainwarden/exporter.yml and remediator.yml:
    systemctl enable --now trainwarden.target"""


@dataclass(frozen=True, slots=True)
class Places:
    """Where everything goes, below `root`, which is / but for packages and tests."""

    root: Path

    @property
    def programs(self) -> Path:
        return self.root / "opt/trainwarden"

    @property
    def configuration(self) -> Path:
        return self.root / "etc/trainwarden"

    @property
    def units(self) -> Path:
        return self.root / "etc/systemd/system"

    @property
    def accounts(self) -> Path:
        return self.root / "etc/sysusers.d/trainwarden.conf"


def main() -> int:
    """The exit status: 0, or 1 when something is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--remove", action="store_true", help="all but configuration and state")
    parser.add_argument("--root", type=Path, default=Path("/"), help="install below this folder")
    options = parser.parse_args()
    places = Places(options.root)
    if os.geteuid() != 0:
        print("this needs root", file=sys.stderr)
        return 1
    try:
        if options.remove:
            remove(places)
        else:
            install(places)
            print(NEXT)
    except (StackError, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def install(places: Places) -> None:
    """Raises StackError or CalledProcessError, naming what cannot be had."""
    install_programs(places)
    install_servers(places)
    configure(places)
    places.accounts.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "trainwarden.sysusers", places.accounts)
    places.units.mkdir(parents=True, exist_ok=True)
    for name in UNITS:
        shutil.copy(HERE / name, places.units)
    if places.root == Path("/"):
        for command in (["systemd-sysusers", "trainwarden.conf"], ["systemctl", "daemon-reload"]):
            subprocess.run(command, check=True)


def install_programs(places: Places) -> None:
    """Both programs in a virtual environment of their own."""
    python = places.programs / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", places.programs], check=True)
    quietly = ("--quiet", "--disable-pip-version-check", "--upgrade")
    subprocess.run([python, "-m", "pip", "install", *quietly, PROJECT], check=True)


def install_servers(places: Places) -> None:
    """Prometheus and Alertmanager: those on PATH, else the distribution's, in our own folder."""
    binaries = find_binaries()
    servers = {"prometheus": binaries.prometheus, "alertmanager": binaries.alertmanager}
    tools = {"promtool": binaries.promtool, "amtool": binaries.amtool}
    for name, program in (servers | tools).items():
        link = places.programs / "bin" / name
        link.unlink(missing_ok=True)
        link.symlink_to(_kept(program, places))


def _kept(program: Path, places: Places) -> Path:
    """Where a program will stay: what was unpacked below this project is copied, with its files."""
    unpacked = program.parent.parent.parent
    if not (unpacked / "usr/libexec").is_dir() or unpacked == Path("/"):
        return program
    kept = places.programs / "lib/servers" / unpacked.name
    if program.name in ("prometheus", "prometheus-alertmanager"):
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(unpacked, kept, symlinks=True)
        for path in (kept, *kept.rglob("*")):
            # Unpacked for one account alone; each service has an account of its own.
            if not path.is_symlink():
                mode = path.stat().st_mode
                path.chmod(mode | (0o055 if mode & 0o100 else 0o044))
    return kept / program.relative_to(unpacked)


def configure(places: Places) -> None:
    """Put there what is missing; rules are ours, and replaced."""
    folder = places.configuration
    folder.mkdir(parents=True, exist_ok=True)
    rules = PROJECT / "rules"
    shipped = (HERE / "exporter.yml", HERE / "remediator.yml")
    for file in (*shipped, rules / "prometheus.yml", rules / "alertmanager.yml"):
        if not (folder / file.name).exists():
            shutil.copy(file, folder)
    for name in RULES:
        shutil.rmtree(folder / name, ignore_errors=True)
        shutil.copytree(rules / name, folder / name)
    token = folder / "webhook-token"
    if not token.exists():
        only_root = os.open(token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(only_root, "w") as opened:
            opened.write(secrets.token_hex(32) + "\n")
    # Alertmanager's configuration names a token in `secrets`, beside it.
    link = folder / "secrets"
    if not link.is_symlink() and not link.exists():
        link.symlink_to("/run/credentials/trainwarden-alertmanager.service")


def remove(places: Places) -> None:
    """Stop it and take it away; configuration, journal and history stay."""
    if places.root == Path("/"):
        _try(["systemctl", "disable", "--now", *UNITS])
    for name in UNITS:
        (places.units / name).unlink(missing_ok=True)
    places.accounts.unlink(missing_ok=True)
    shutil.rmtree(places.programs, ignore_errors=True)
    if places.root == Path("/"):
        _try(["systemctl", "daemon-reload"])


def _try(command: Sequence[str]) -> None:
    subprocess.run(command, check=False)


if __name__ == "__main__":
    sys.exit(main())
