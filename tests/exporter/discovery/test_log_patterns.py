from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from trainwarden_exporter.discovery.log_patterns import READ_BYTES, propose_patterns, read_tail
from trainwarden_exporter.frameworks.base import Phase


@pytest.mark.parametrize(
    ("lines", "regex", "values"),
    [
        (
            ("t step 1/100 loss: 2.5 reward=0.1", "t step 2/100 loss: 2.4 reward=0.2"),
            r"\b[Ss]tep (?P<step>\d+)/(?P<total>\d+)",
            ("loss", "reward"),
        ),
        (
            ("Step: 10 | loss=0.5 | lr=1e-5", "Step: 20 | loss=0.4 | lr=1e-5"),
            r"\b[Ss]tep[ :=]+(?P<step>\d+)",
            ("loss", "lr"),
        ),
        (
            ("iteration 7/9", "iteration 8/9"),
            r"\b[Ii]ter(?:ation)?[ :=]+(?P<step>\d+)(?:/ *(?P<total>\d+))?",
            (),
        ),
        (
            ("{'global_step': 3, 'kl': 0.1}", "{'global_step': 4, 'kl': 0.2}"),
            r"\bglobal_step['\" :=]+(?P<step>\d+)",
            ("kl",),
        ),
    ],
)
def test_the_lines_that_tell_steps_are_found(
    lines: tuple[str, ...], regex: str, values: tuple[str, ...]
) -> None:
    (found,) = propose_patterns("\n".join(lines))
    assert (found.name, found.regex, found.phase) == ("step", regex, Phase.TRAINING)
    assert found.values == values
    assert found.example == lines[-1]


@pytest.mark.parametrize(
    "text",
    ["", "step 1/10 of the installation", "step 5/10\nstep 5/10", "step 9/10\nstep 3/10"],
)
def test_a_number_that_does_not_rise_is_no_progress(text: str) -> None:
    assert propose_patterns(text) == ()


def test_phases_are_identified_by_their_lines() -> None:
    text = "12:00 waiting for rollouts\n12:01 Saving checkpoint to /data\n12:02 Training finished"
    phases = {found.phase for found in propose_patterns(text)}
    assert phases == {Phase.WAITING_FOR_ROLLOUTS, Phase.SAVING, Phase.FINISHED}


def test_an_emergency_brake_is_found_and_reset_by_each_step() -> None:
    braked = "12:02 Emergency brake triggered: killing trial 3"
    step, brake = propose_patterns(f"Trial 1 finished\nTrial 2 finished\n{braked}")
    assert (step.resets, brake.name, brake.error, brake.example) == (
        brake.name,
        "emergency_brake",
        True,
        braked,
    )
    assert propose_patterns(braked) == (), "its streak would never end"


def test_only_the_end_of_a_long_log_is_read_without_its_colours(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"first\n" + b"x" * READ_BYTES + b"\n\x1b[32mstep 1/2\x1b[0m \xff\n")
    text = read_tail(log)
    assert "first" not in text
    assert "\nstep 1/2 \N{REPLACEMENT CHARACTER}\n" in text


def test_a_log_that_is_not_there_says_nothing(tmp_path: Path) -> None:
    assert read_tail(tmp_path / "absent.log") == ""


def test_numbers_are_proposed_without_a_colon_and_by_any_prefix() -> None:
    text = "step 10 loss 0.5 lr 1e-4\nstep 20 loss 0.4 train_loss=nan val_acc 0.9"
    (pattern,) = propose_patterns(text)
    assert pattern.values == ("loss", "train_loss", "val_acc")


def test_the_total_of_megatron_stands_in_a_column() -> None:
    text = (
        " iteration       10/    1000 | lm loss: 9.1\n iteration       20/    1000 | lm loss: 8.9"
    )
    (pattern,) = propose_patterns(text)
    match = re.search(pattern.regex, text)
    assert match is not None
    assert (match["step"], match["total"]) == ("10", "1000")


def test_a_pipe_that_is_named_like_a_log_is_not_opened(tmp_path: Path) -> None:
    pipe = tmp_path / "train.log"
    os.mkfifo(pipe)
    assert read_tail(pipe) == ""
