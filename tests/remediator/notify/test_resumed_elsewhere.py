"""A restarted run that makes steps again over its checkpoints needs its operator at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.fake_clock import FakeClock
from tests.remediator.notify.test_notifier import receivers
from tests.remediator.notify.test_recurring import heal, sent

from trainwarden_remediator.config.notifications import NotificationEvent
from trainwarden_remediator.journal.event_text import describe
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.observation.model import RunState
from trainwarden_remediator.policy.effect import passed_over

FROM_ZERO = RunState(
    step=30,
    first_step=1,
    resume_step=0,
    resume_checkpoint=80,
    proved_step=80,
    proved_checkpoint="/ck/checkpoint-80.json",
)
REMARK = "resumed from step 0, though step 80 was saved"


def restart(journal: Journal, clock: FakeClock, run: RunState = FROM_ZERO) -> None:
    """A worker has ended, and is started; its run is then as in `run`."""
    facts: dict[str, Any] = {"resume_step": 0, "remark": REMARK, **passed_over(run)}
    heal(journal, clock, alert="TrainingWorkerGone", step=100, **facts)


def test_it_rings_and_says_what_to_stop_and_from_where_it_resumes(
    tmp_path: Path, journal: Journal, clock: FakeClock
) -> None:
    restart(journal, clock)
    [message] = sent(journal, receivers(), tmp_path)
    [item] = message.items
    assert message.urgent
    assert message.events == ("resumed_elsewhere",)
    assert item.title == "a restarted run has not resumed from its checkpoint, operator needed"
    assert item.values["Who acts"] == "You, now"
    assert item.values["What"] == (
        "it makes steps again, and may overwrite better checkpoints: verified 60 s after the action"
        f" began; but {REMARK}"
    )
    to_do = item.values["What to do"]
    assert "stop the run before it overwrites that checkpoint (`trainwarden stop " in to_do
    assert "The newest is `/ck/checkpoint-80.json`." in to_do
    assert not any("healed" in value for value in item.values.values())


def test_each_such_start_rings_and_the_second_has_the_pace_too(
    tmp_path: Path, journal: Journal, clock: FakeClock
) -> None:
    restart(journal, clock)
    restart(journal, clock)
    messages = sent(journal, receivers(), tmp_path)
    assert [one.urgent for one in messages] == [True, True]
    assert "mend its cause" in messages[1].items[0].values["What to do"]
    assert "at least 200 steps made again" in messages[1].items[0].values["Repeated"]


def test_a_receiver_without_that_event_gets_no_message_that_all_is_well(
    tmp_path: Path, journal: Journal, clock: FakeClock
) -> None:
    events: list[NotificationEvent] = ["healed"]
    restart(journal, clock)
    [message] = sent(journal, receivers(events=events), tmp_path)
    assert message.calls
    assert message.items[0].title.startswith("a restarted run has not resumed")
    assert message.items[0].values["Who acts"] == "You, now"
    assert "What to do" in message.items[0].values


@pytest.mark.parametrize(
    "run",
    [
        replace(FROM_ZERO, step=80),  # it has reached it again
        replace(FROM_ZERO, first_step=79),  # names and logs may count from zero or from one
        replace(FROM_ZERO, first_step=81, step=81),
        replace(FROM_ZERO, resume_checkpoint=None),  # as of epochs, or where no start was seen
        replace(FROM_ZERO, first_step=None),
        replace(FROM_ZERO, finished=True),
        RunState(),
    ],
)
def test_nobody_is_called_where_no_checkpoint_is_at_stake(
    tmp_path: Path, journal: Journal, clock: FakeClock, run: RunState
) -> None:
    restart(journal, clock, run)
    [message] = sent(journal, receivers(), tmp_path)
    assert (message.title, message.urgent, message.calls) == ("healed", False, False)
    assert message.items[0].values["Who acts"] == "Nobody needs to"


def test_another_checkpoint_is_not_named_as_that_one() -> None:
    assert passed_over(replace(FROM_ZERO, proved_step=20)) == {"passed_over": 80}


def test_the_journal_does_not_call_it_healed(journal: Journal, clock: FakeClock) -> None:
    restart(journal, clock)
    [line] = [describe(one) for one in journal.newest_events(99) if one.kind == "outcome"]
    assert line.startswith("it makes steps again, and may overwrite better checkpoints: verified")
