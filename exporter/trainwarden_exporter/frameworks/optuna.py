"""Optuna: https://github.com/optuna/optuna, read at 4.5 to 5.0.

Progress is counted in trials, which several workers finish in any order: there is no step.
Sources: optuna/study/, optuna/storages/journal/.
"""

from __future__ import annotations

from trainwarden_exporter.frameworks import base as fw
from trainwarden_exporter.frameworks.common_patterns import NUMBER

FRAMEWORK = fw.Framework(
    name="optuna",
    title="Optuna",
    versions="4.5 to 5.0",
    logs=(
        fw.LogLayout("workers", ("*worker*.log", "logs/*.log", "*.out"), role="trainer"),
        fw.LogLayout("journal", ("*journal*", "optuna*.jsonl"), role="storage"),
    ),
    lines=(
        fw.LinePattern(
            "trial_finished",
            rf"Trial (?P<trial>\d+) finished with values?: \[?(?P<value>{NUMBER})",
            advances=True,
        ),
        fw.LinePattern("trial_pruned", r"Trial (?P<trial>\d+) pruned\b", advances=True),
        # A second line, "failed with value", follows each of these.
        fw.LinePattern(
            "trial_failed",
            r"Trial (?P<trial>\d+) failed with parameters",
            advances=True,
            error=True,
        ),
        fw.LinePattern("best", rf"Best is trial \d+ with value: (?P<best_value>{NUMBER})"),
        fw.LinePattern(
            "journaled", r'"op_code": ?6\b.*"state": ?[123]\b', advances=True, role="storage"
        ),
        # The storage writes a trial before its line. Optuna names no storage of an existing study:
        # one in memory can only exist in the process that has created it.
        fw.LinePattern(
            "stored_study", r"A new study created in (?:RDB|Journal) |Using an existing study"
        ),
        fw.LinePattern("unstored_study", r"A new study created in memory "),
        fw.error_line("lock_held", r"It is taking longer than .* to acquire the lock file"),
    ),
    modules=("optuna",),
    log_signature=(
        r'Trial \d+ (?:finished with values?|pruned)|A new study created in |"op_code": ?\d'
    ),
    roles=(fw.trainer_process(r"\boptuna\b"),),
    notes=fw.bullet_points("""
        - path is the folder of the journal (*journal*) and of the workers' logs (*worker*.log, or
          any in logs).
        - Of a study in a database (SQLite, PostgreSQL, MySQL) the log shows that it is stored, and
          its trials: the database is never opened, so that no lock of it is taken.
        - There is no step: trials count as progress, and each worker should be watched by a
          heartbeat or by its memory.
        - Workers are any Python program: select them by their script.
        - A trial whose worker died stays RUNNING until another worker begins a trial; without
          heartbeat_interval, or with a journal, it stays RUNNING forever.
        - A journal's .lock file older than 30 s belongs to a writer that died.
    """),
)
