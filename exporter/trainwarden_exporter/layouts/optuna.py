"""Optuna: https://github.com/optuna/optuna, read at 4.5 to 5.0.

What goes forward here is trials, which several workers end in any order: there is no step.
Sources: optuna/study/, optuna/storages/journal/.
"""

from __future__ import annotations

from trainwarden_exporter.layouts.base import (
    Layout,
    LinePattern,
    LogLayout,
    RoleLayout,
    points,
)
from trainwarden_exporter.layouts.numbers import NUMBER

LAYOUT = Layout(
    name="optuna",
    title="Optuna",
    versions="4.5 to 5.0",
    logs=(
        LogLayout("workers", ("*worker*.log", "logs/*.log", "*.out"), role="trainer"),
        LogLayout("journal", ("*journal*", "optuna*.jsonl"), role="storage"),
    ),
    lines=(
        LinePattern(
            "trial_finished",
            rf"Trial (?P<trial>\d+) finished with values?: \[?(?P<value>{NUMBER})",
            advances=True,
        ),
        LinePattern("trial_pruned", r"Trial (?P<trial>\d+) pruned\b", advances=True),
        LinePattern(
            "trial_failed", r"Trial (?P<trial>\d+) failed with ", advances=True, trouble=True
        ),
        LinePattern("best", rf"Best is trial \d+ with value: (?P<best_value>{NUMBER})"),
        LinePattern(
            "journaled", r'"op_code": ?6\b.*"state": ?[123]\b', advances=True, role="storage"
        ),
        LinePattern("created", r"A new study created in |Using an existing study"),
        LinePattern(
            "lock_held", r"It is taking longer than .* to acquire the lock file", trouble=True
        ),
    ),
    roles=(RoleLayout("trainer", r"\boptuna\b", finishes=True),),
    notes=points("""
        - path is the folder of the journal (*journal*) and of the workers' logs (*worker*.log, or
          any in logs).
        - There is no step: trials count, and each worker should be watched by a heartbeat or by
          its memory.
        - Workers are any python: name them by their script.
        - A trial whose worker died stays RUNNING until some worker begins another trial, and for
          ever if none does; without heartbeat_interval, or with a journal, for ever in any case.
        - A journal's .lock file older than 30 s is that of a writer that died.
    """),
)
