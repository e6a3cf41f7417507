"""What a run does, in a clause: for the headline, the pages and `trainwarden status`."""

from __future__ import annotations

from collections.abc import Iterator

from trainwarden_exporter.runtime.formatting import describe_finish, format_duration
from trainwarden_exporter.status_page.part_views import SETTLING
from trainwarden_exporter.status_page.run_views import RunView


def describe_run(run: RunView) -> str:
    """Returns `demo trains, step 9 (1 s ago, usually every 2 s), last complete save 17 s ago`.

    A later save counts once it is known to be complete.
    """
    verb = run_verb(run)
    step = ""
    if run.step is not None:
        step = f"step {run.step:,.0f}{'' if run.total is None else f' of {run.total:,.0f}'}"
    if run.step_age is not None and not run.finished:
        usual = "" if run.down or run.last_step_made else run.usual_pace
        every = f", usually every {usual}" if usual else ""
        ago = format_duration(round(run.step_age))
        if run.quiet:
            verb = f"has made no step for {ago}{every}"
        elif step:
            step += f" ({ago} ago{every})"
    parts = [f"{run.name} {verb}", *([step] if step else [])]
    if run.stepless:
        parts = [f"{run.name} {run_verb(run)}: {run.advice}"]
    if (run.stalled or run.late) and not run.last_step_made:
        parts = [f"{run.name} stands {f'at {step}' if step else 'still'}"]
    elif run.moves and not (run.finished or run.down):
        # Evaluations, mostly, but the log may not say so.
        parts = [f"{run.name} is at {step or 'its first step'}; a bar counts on: {run.counted}"]
    text = ", ".join((*parts, *_describe_saves(run)))
    return f"{text}; {run.outlived}" if run.outlived else text


def run_verb(run: RunView) -> str:
    """Returns what a run does, as `trains` or `has failed (killed by SIGKILL)`."""
    if run.failure:
        return f"has failed ({run.failure})"
    if run.finished:
        return describe_finish(run.step, run.total)
    if run.down:  # its last phase stays known
        return "does not run"
    if run.last_step_made:
        return "has made its last step"
    if run.stepless:
        return f"has shown no step for {format_duration(round(run.without_step))}"
    phase = run.phase.replace("_", " ")
    unknown = "runs" if run.trainer_processes else "is watched"
    words = {"": unknown, "training": "trains", "waiting for rollouts": "trains"}
    return words.get(phase, f"is {phase}")


def _describe_saves(run: RunView) -> Iterator[str]:
    ages = [one.age for one in run.checkpoints if one.age is not None]
    unsettled = next(filter(None, (one.unsettled for one in run.checkpoints)), "")
    if ages and not run.finished:
        saved = f"last complete save {format_duration(round(min(ages)))} ago"
        yield f"{saved} ({unsettled} {SETTLING})" if unsettled else saved
    if run.unnamed:
        yield f"no checkpoint ({run.unnamed})"
