"""What stored evidence shows of a fault."""

from __future__ import annotations

from typing import Any

from tests.remediator.samples import NOW

from trainwarden_remediator.journal.evidence_text import FaultFacts, fault_facts, parse_evidence

RAISED = "FileNotFoundError: no such dataset: /data/grpo.jsonl"
TRAINER = {"processes": 0, "expected": 1, "last_exit_code": 1, "last_exit_at": NOW}


def log(*lines: str, path: str = "/runs/trainer.log") -> dict[str, Any]:
    return {"name": "trainer", "path": path, "lines": list(lines)}


def test_the_cause_is_the_first_end_and_the_error_the_exception_of_the_own_log() -> None:
    found = fault_facts(
        {
            "seen": {
                "workers": {
                    "grpo/server": {**TRAINER, "last_exit_at": NOW + 9, "last_exit_code": 137},
                    "grpo/trainer": TRAINER,
                    "grpo/eval": {"processes": 1, "expected": 1, "last_exit_code": 3},
                }
            },
            "logs": [
                log("Traceback (most recent call last):", '  File "die.py", line 4', RAISED, "bye"),
                log("CUDA out of memory. Tried to allocate 2 GiB", path="/runs/other.log"),
            ],
        }
    )
    assert found == FaultFacts("grpo/trainer ended with exit status 1", RAISED, "/runs/trainer.log")


def test_what_starts_a_command_again_is_what_it_announced() -> None:
    commands = {
        f"grpo/{code}": {"exit_code": code, "start_command": f"run {code}"} for code in (None, 0, 3)
    }
    assert fault_facts({"announced": commands}) == FaultFacts(start="run 3")


def test_the_cause_of_a_hang_that_is_proved_is_what_it_waits_for() -> None:
    chain = "process 7 of trainer waits for a queue at data.py:18"

    def cause(**run: Any) -> str:
        return fault_facts({"seen": {"runs": {"grpo": {"waits": chain, **run}}}}).cause

    assert (cause(stuck=True), cause(stuck=False), cause()) == (chain, "", "")


def test_without_an_error_it_is_the_own_log_and_without_evidence_nothing() -> None:
    logs = [log(), log("step 7", path="/runs/a.log"), log("Killed", path="/runs/b.log")]
    assert fault_facts({"logs": logs[:2]}) == FaultFacts(log="/runs/a.log")
    assert fault_facts({"logs": logs}) == FaultFacts(error="Killed", log="/runs/b.log")
    for damaged in ("", "[]", '{"seen'):
        assert fault_facts(parse_evidence(damaged)) == FaultFacts()


def test_without_an_error_the_last_lines_are_those_of_a_process_that_has_ended() -> None:
    ended, runs = ({**TRAINER, "processes": count} for count in (0, 1))
    logs = [log("loading", "no key `lr` in train.yml"), log("step 1", path="/runs/b.log")]

    def lines(worker: dict[str, Any], *logs: dict[str, Any]) -> str:
        return fault_facts({"seen": {"workers": {"grpo/trainer": worker}}, "logs": logs}).lines

    assert lines(ended, *logs) == "loading | no key `lr` in train.yml"
    assert (lines(runs, *logs), lines(ended, *logs, log(RAISED))) == ("", "")
