"""Whether a process is left that could go on writing a checkpoint."""

from __future__ import annotations

from trainwarden_exporter.run_specs import checkpoint_specs
from trainwarden_remediator.actions.descendants import DescendantTracker
from trainwarden_remediator.actions.save_check import SaveCheck
from trainwarden_remediator.actions.worker_processes import WorkerProcessFinder
from trainwarden_remediator.config.schema import Setup
from trainwarden_remediator.config.targets import Target
from trainwarden_remediator.exceptions import ActionError


class Writers:
    """Looks for the processes of a target's workers on this host.

    Their unit, container or program may run without them: its first process may be a shell.
    """

    def __init__(self, target: Target, setup: Setup, tracker: DescendantTracker) -> None:
        self._finder = WorkerProcessFinder(target.keys, setup.selectors, tracker)
        run = setup.run_config(target.run)
        self._save_check = SaveCheck(() if run is None else checkpoint_specs(run))

    def any_left(self) -> bool:
        """Also true if the processes are unknown, or a checkpoint was written to just now.

        The latter shows a process that no selector finds.
        """
        try:
            return bool(self._finder.find().alive or self._save_check.saves(()))
        except ActionError:
            return True
