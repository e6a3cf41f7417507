"""The verdict as data for programs. Pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from trainwarden.autopsy.kinds import Kind
from trainwarden.autopsy.report import alerts, next_steps, proposed_settings
from trainwarden.autopsy.timeline import how_it_ended, timeline
from trainwarden.autopsy.verdict import Verdict


def as_data(verdict: Verdict) -> dict[str, Any]:
    """Returns the verdict; times are Unix seconds, null where unknown."""
    case = verdict.case
    sign, checkpoint, resume = case.last_sign, case.checkpoint, case.resume
    good = None if resume is None else resume.checkpoint
    recovery = None if checkpoint is None else checkpoint.snapshot.recovery
    step = case.checkpoint_step
    return {
        "folder": str(case.material.folder),
        "headline": verdict.headline,
        "healthy": verdict.has_material
        and not (verdict.likely or verdict.pause)
        and case.latest is not None,
        "framework": case.material.framework.name,
        "finished": case.finished,
        "announced": [
            {
                "run": one.run,
                "worker": one.worker,
                "state": one.state,
                "end": one.how or None,
                "ended_at": one.ended_at,
                "log": str(one.log),
            }
            for one in case.material.announced
        ],
        "other_runs": [
            {"run": one.run, "state": one.state, "folder": str(one.own_path)}
            for one in case.material.other_runs
        ],
        "mixed_checkpoints": list(case.mixed_checkpoints),
        "last_sign_of_life": None if sign is None else {"at": sign[0], "file": sign[1]},
        "last_step": case.last_step,
        "last_progress_at": case.last_progress_at,
        "checkpoint": None
        if good is None or resume is None
        else {
            "name": good.name.text,
            "step": step,
            "completed_at": good.completed_at,
            "state": resume.state,
        },
        "damaged_checkpoints": []
        if resume is None
        else [
            {"name": one.step_dir.name.text, "text": str(one.damages[0])} for one in resume.damaged
        ],
        "loss_finite_until": case.finite_until,
        "recovery": None
        if recovery is None
        else {"step": recovery.step, "complete": recovery.is_complete},
        "resume_step": None if step is None else step + 1,
        "causes": [
            {
                "name": one.cause.name,
                "title": one.cause.title,
                "score": one.score,
                "likely": one.likely,
                "evidence": [
                    {"points": points, "text": found.text, "line": found.line}
                    for points, found in one.evidence
                ],
            }
            for one in verdict.weighed
        ],
        "next_steps": next_steps(verdict),
        "alerts": alerts(verdict),
        "exporter_yml": proposed_settings(verdict),
        "errors": [_kind(error) for error in case.errors],
        "attempts": [
            {
                "file": one.file,
                "first_step": one.first_step,
                "last_step": one.last_step,
                "total": one.total,
                "began_at": one.began_at,
                "progress_at": one.progress_at,
                "finished": case.has_finished(one),
                "end": how_it_ended(case, one),
            }
            for one in case.attempts
        ],
        "actions": [asdict(one) for one in case.material.actions],
        "timeline": [
            {"at": event.at, "text": event.text, "line": event.line} for event in timeline(case)
        ],
        "unread": list(case.material.unread),
    }


def _kind(kind: Kind) -> dict[str, Any]:
    return {
        "kind": kind.name,
        "count": kind.count,
        "first_at": kind.first.at,
        "last_at": kind.last.at,
        "files": list(kind.files),
        "last_line": kind.last.text,
    }
