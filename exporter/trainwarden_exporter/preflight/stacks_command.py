"""The command `stacks`: shows what the processes of runs do."""

from __future__ import annotations

import argparse
import json

from trainwarden_exporter.preflight.run_selection import add_run, select_runs
from trainwarden_exporter.processes.config import workers_by_key
from trainwarden_exporter.processes.matching import Matcher
from trainwarden_exporter.processes.stacks.sampler import sample_run
from trainwarden_exporter.processes.stacks.text import as_data, render


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser, "name (default: all runs)")


def run(options: argparse.Namespace) -> int:
    """Samples the stacks of each run three times in ten seconds. Raises UsageError."""
    _, runs = select_runs(options.config_file, options.run)
    data = []
    for run in runs:
        selectors = {key: worker.match for key, worker in workers_by_key([run]).items()}
        diagnosis = sample_run(run, Matcher(selectors))
        data.append(as_data(run.name, diagnosis))
        if not options.json:
            print("\n".join((f"run {run.name}", *render(diagnosis))))
    if options.json:
        print(json.dumps(data, indent=2))
    return 0
