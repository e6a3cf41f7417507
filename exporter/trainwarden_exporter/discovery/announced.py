"""Finds the processes of the runs that `trainwarden run` announces."""

from __future__ import annotations

import time

from trainwarden_exporter.config import Config, announcements_folder, with_announced
from trainwarden_exporter.processes.announcement_files import read_announcements
from trainwarden_exporter.processes.config import workers_by_key
from trainwarden_exporter.processes.matching import Matcher
from trainwarden_exporter.processes.procfs import read_processes


def announced_processes() -> dict[int, str]:
    """Returns the name of its run for each process of an announced run, by pid.

    Raises CollectError if the processes cannot be listed.
    """
    announced = read_announcements(announcements_folder(Config()), time.time())
    config, _ = with_announced(Config(), announced)
    selectors = {key: worker.match for key, worker in workers_by_key(config.runs).items()}
    trees = Matcher(selectors).assign(read_processes())
    return {process.pid: key.run for key, tree in trees.items() for process in tree.members}
