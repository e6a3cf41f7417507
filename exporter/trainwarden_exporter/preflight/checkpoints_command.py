"""The command `checkpoints`: lists the checkpoints of runs with their proofs."""

from __future__ import annotations

import argparse
import json

from trainwarden_exporter.preflight.checkpoints import list_checkpoints
from trainwarden_exporter.preflight.run_selection import add_run, select_runs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser, "name, or the folder of its checkpoints (default: all runs)")


def run(options: argparse.Namespace) -> int:
    """Lists the checkpoints of runs with their proofs.

    Returns 0 if a resume takes no damaged one, else 1. Raises UsageError.
    """
    config, runs = select_runs(options.config_file, options.run, past=options.run is not None)
    found = [one for run in runs for one in list_checkpoints(run, config.state_folder)]
    if options.json:
        print(json.dumps([one.as_data() for one in found], indent=2))
    elif not found:
        print(f"{', '.join(run.name for run in runs)}: no folder of checkpoints is known")
    else:
        print("\n".join(line for one in found for line in one.lines()))
    return int(any(one.proofs.resume_problem for one in found))
