"""What an action is about to end, as it is told from all else."""

from __future__ import annotations

from collections.abc import Collection

from trainwarden_exporter.processes.procfs import Identity

Subject = Identity | str
"""A process; or one run of something that a manager keeps (a unit, a container, a pod, a job), by
what the manager itself tells that run by. One that is started anew is another."""


def processes_among(subjects: Collection[Subject]) -> list[Identity]:
    """Those of `subjects` that are processes."""
    return [subject for subject in subjects if isinstance(subject, Identity)]
