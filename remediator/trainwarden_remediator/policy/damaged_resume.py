"""Decides whether a run would resume again from a checkpoint that it could not load. Pure.

What takes the newest checkpoint, as most scripts do, fails at each start until an operator moves
that one away, or names another (harm 11).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainwarden_exporter.frameworks.error_lines import shown_error
from trainwarden_exporter.processes.announcements import Announcement
from trainwarden_remediator.config.targets import Target
from trainwarden_remediator.model import Decision, PastAction
from trainwarden_remediator.observation.model import RunState
from trainwarden_remediator.policy.conditions import is_saving
from trainwarden_remediator.policy.context import DecisionContext

_LOADING = re.compile(
    r"checkpoint|safetensors?|deserializ|state_dict|pytorch_?stream_?reader|unpickl|pickle data"
    r"|central directory|not a zip ?file|invalid load key|ran out of input|unexpected (eof|end)"
    r"|\bEOFError|\bload_file|torch\.load|from_pretrained|jsondecodeerror",
    re.IGNORECASE,
)
"""A word of the last lines of a process that has failed at loading a checkpoint."""


def refuse_damaged_resume(
    context: DecisionContext, target: Target, run: RunState | None, history: Sequence[PastAction]
) -> Decision | None:
    """A decision not to restart a run into the checkpoint that its last start failed to load.

    None if that is not known: the first restart shows it, as a framework may skip what is damaged.
    `history`: the actions on `target`, oldest first.
    """
    damage = "" if run is None or is_saving(run, context.now) else _damage(run)
    if run is None or not damage or not history:
        return None
    last = history[-1]
    if last.ended_at is None or last.healed or (run.last_step_at or 0.0) > last.intent_at:
        return None
    found = context.state.setup.announced.workers.get(target.key)
    error = "" if found is None else _loading_error(found.announcement)
    if not error:
        return None
    proved = run.proved_checkpoint
    way = "no checkpoint is proved: `trainwarden checkpoints` lists them"
    if proved:
        way = f"the newest proved one is {proved}: resume from that, or move the newer ones away"
    return context.refuse(
        "damaged_resume", target, f"{damage}, and its load failed: {error}; {way}"
    )


def _damage(run: RunState) -> str:
    """Returns which checkpoint a resume would take that is damaged or incomplete, or ""."""
    if run.resume_problem:
        return run.resume_problem
    step, complete = run.incomplete_step, run.checkpoint
    if step is None or (complete is not None and step <= complete):
        return ""
    return f"the newest checkpoint, {run.incomplete or f'of step {step:g}'}, is incomplete"


def _loading_error(one: Announcement) -> str:
    lines = " ".join(one.last_lines)
    if one.state == "running" or not _LOADING.search(lines):
        return ""
    return shown_error(one.last_lines).replace("`", "'")
