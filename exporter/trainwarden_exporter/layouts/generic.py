"""No framework in particular: all that is watched stands in exporter.yml."""

from __future__ import annotations

from trainwarden_exporter.layouts.base import Layout, points

LAYOUT = Layout(
    name="generic",
    title="Anything else",
    notes=points("""
        - Folders, logs and patterns are given under checkpoints, rollouts and logs of the run.
          `trainwarden-exporter discover` proposes them from what lies in a folder.
        - Without a line or a file that tells the step, let the trainer post its steps to a
          heartbeat.
    """),
)
