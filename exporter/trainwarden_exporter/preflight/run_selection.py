"""Selects the runs that a command is about: those of a configuration, and announced ones."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from trainwarden_exporter.checkpoints.config import CheckpointConfig
from trainwarden_exporter.config import Config, announcements_folder, load_config, with_announced
from trainwarden_exporter.exceptions import ConfigError, UsageError
from trainwarden_exporter.processes.announcement_files import read_announcements
from trainwarden_exporter.run_config import RunConfig
from trainwarden_exporter.runtime.command_parser import add_config_file, add_json
from trainwarden_exporter.runtime.similar_names import did_you_mean


def add_run(parser: argparse.ArgumentParser, text: str) -> None:
    """Adds the arguments of a command that is about a run, which `text` says how to name."""
    parser.add_argument("run", nargs="?", metavar="RUN", help=text)
    add_config_file(parser, "configuration file; without it, only announced runs are known")
    add_json(parser)


def load_optional(file: Path | None) -> Config:
    """Returns the configuration in `file`, or the defaults. Raises UsageError."""
    try:
        return Config() if file is None else load_config(file)
    except ConfigError as error:
        raise UsageError(str(error)) from error


def select_runs(
    file: Path | None, name: str | None, *, past: bool = False
) -> tuple[Config, list[RunConfig]]:
    """Returns the configuration in `file`, and its run of that name, or all. Raises UsageError.

    With `past`, it may be an announced run that was stopped, and may be named by the folder of its
    checkpoints.
    """
    config = load_optional(file)
    folder = announcements_folder(config)
    config, _ = with_announced(config, read_announcements(folder, time.time(), past=past))
    runs = [run for run in config.runs if name in (None, run.name)]
    place = Path(name or "").resolve() if past and not runs else None
    runs = runs or [one for one in config.runs if place and place in map(_folder, one.checkpoints)]
    if not runs:
        names = [run.name for run in config.runs]
        known = ", ".join(names) or "none, `trainwarden run` starts one"
        named = "" if name is None else f"no run has the name {name}; "
        hint = did_you_mean(name or "", names)
        if place and place.is_dir():
            hint = "; `trainwarden autopsy` reads any folder"
        raise UsageError(f"{named}runs: {known}{hint}")
    return config, runs


def _folder(checkpoints: CheckpointConfig) -> Path:
    return Path(checkpoints.folder or "/").resolve()
