"""Checkpoints on disk."""

from __future__ import annotations

from boards import style, why
from boards.panels import BYTES, COUNT, NAME, SECONDS, Graph
from boards.queries import Query
from boards.style import words
from boards.tables import Column, Table

_BY = "max by (run, checkpoint, instance)"


def checkpoints_table() -> Table:
    """Each kind of checkpoint of each run."""
    return Table(
        title="Checkpoints",
        about=(
            "What lies on disk. Good: none incomplete but while one is being saved, and a "
            "recovery record that fits: otherwise a restart would repeat steps, or fail."
        ),
        queries=[
            Query(
                f"{_BY} (trainwarden_checkpoint_complete{{RUN}})",
                "complete",
                why.NO_CHECKPOINTS,
            ),
            Query(
                f"{_BY} (trainwarden_checkpoint_incomplete{{RUN}})",
                "incomplete",
                why.NO_CHECKPOINTS,
            ),
            Query(f"{_BY} (trainwarden_checkpoint_step{{RUN}})", "step", why.NO_CHECKPOINTS),
            Query(
                f"1000 * {_BY} (trainwarden_checkpoint_timestamp_seconds{{RUN}})",
                "saved",
                why.NO_CHECKPOINTS,
            ),
            Query(f"{_BY} (trainwarden_checkpoint_size_bytes{{RUN}})", "size", why.NO_CHECKPOINTS),
            Query(
                f"{_BY} (trainwarden_checkpoint_interval_seconds{{RUN}})",
                "every",
                why.NO_INTERVAL,
            ),
            Query(
                f"{_BY} (trainwarden_checkpoint_recovery_step{{RUN}})",
                "record",
                why.NO_RECORD,
            ),
            Query(
                f"{_BY} (trainwarden_checkpoint_recovery_matches{{RUN}})",
                "fits",
                why.NO_RECORD,
            ),
            Query(
                f"1000 * {_BY} (trainwarden_checkpoint_uncopied_timestamp_seconds{{RUN}})",
                "uncopied",
                why.NO_COPIES,
            ),
            Query(
                f"{_BY} (trainwarden_checkpoint_resume_damaged{{RUN}})",
                "damaged",
                why.NO_CHECKPOINTS,
            ),
        ],
        width=24,
        height=5,
        columns=[
            Column(name="run"),
            Column(name="checkpoint"),
            Column(name="step", title="newest step", unit=NAME),
            Column(name="saved", unit="dateTimeFromNow"),
            Column(name="size", unit=BYTES, decimals=1),
            Column(name="complete", unit=NAME),
            Column(name="incomplete", unit=NAME),
            Column(name="every", unit=SECONDS),
            Column(name="record", title="record's step", unit=NAME),
            Column(
                name="fits",
                title="record matches",
                meanings=words(("no", style.CRITICAL), ("yes", style.GOOD)),
            ),
            Column(
                name="damaged",
                title="resume damaged",
                meanings=words(("no", style.GOOD), ("yes", style.CRITICAL)),
            ),
            Column(name="uncopied", title="without a copy", unit="dateTimeFromNow"),
            Column(name="instance"),
        ],
    )


def steps() -> Graph:
    """The steps of a run, and those of its newest complete checkpoints."""
    return Graph(
        title="Steps",
        about=(
            "Steps done, and the step of the newest complete checkpoint: the distance is what "
            "would be lost. Good: a straight line up; a step down is a resume."
        ),
        queries=[
            Query("max by (run) (trainwarden_training_step{RUN})", "{{run}}", why.NO_STEPS),
            Query(
                "max by (run, checkpoint) (trainwarden_checkpoint_step{RUN})",
                "{{run}} saved: {{checkpoint}}",
                why.NO_CHECKPOINTS,
            ),
        ],
        unit=COUNT,
        decimals=0,
        width=8,
        stepped=True,
    )
