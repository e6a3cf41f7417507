from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from trainwarden_exporter.discovery.processes import Candidate
from trainwarden_exporter.discovery.selectors import SelectedWorker, select_workers, worker_name


def candidates(*commands: str) -> list[Candidate]:
    return [Candidate(100 + pid, tuple(line.split())) for pid, line in enumerate(commands)]


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/usr/bin/python3 -u /opt/run/rollout.py --name rollout-0", "rollout-0"),
        ("python3 train.py --lr 0.1", "train"),
        ("python -W ignore -m verl.trainer.main_ppo a=1", "main_ppo"),
        ("python3 -m areal.infra.rpc.rpc_server --role actor --worker-index 3", "actor-3"),
        ("torchrun --nproc-per-node 4 train.py", "train"),
        ("/tmp/v/bin/python /tmp/v/bin/accelerate launch sft.py --x 1", "sft"),
        ("python3 /opt/v/bin/trl sft --config a", "trl"),
        ("bash train.sh", "train"),
        ("PRIME-RL::Trainer", "PRIME-RL::Trainer"),
        ("python3 -c print(1)", "python3"),
        ("/opt/über/läufer --name=a/b", "a-b"),
    ],
)
def test_a_name_is_what_the_options_or_the_script_say(command: str, name: str) -> None:
    assert worker_name(candidates(command)[0]) == name


def check_apart(selected: tuple[SelectedWorker, ...], all_candidates: list[Candidate]) -> None:
    """Each pattern finds the programs of its own worker and no other."""
    for worker in selected:
        found = {p.pid for p in all_candidates if re.search(worker.pattern, p.command)}
        assert found == {p.pid for p in worker.candidates}, worker.pattern


def test_programs_of_one_script_are_distinguished_by_their_options() -> None:
    all_candidates = candidates(
        "python3 rollout.py --name rollout-1 --inference http://h --folder /data/a",
        "python3 rollout.py --name rollout-11 --inference http://h --folder /data/a",
        "python3 trainer.py --name trainer --folder /data/a",
        "vim trainer.py",
        "vim rollout.py --name rollout-1",
        "tail -f trainer.py",
        "tail -f /data/a/logs/rollout-1.log",
    )
    selected = select_workers(all_candidates[:3], all_candidates)
    assert [worker.name for worker in selected] == ["rollout-1", "rollout-11", "trainer"]
    check_apart(selected, all_candidates)


def test_a_run_beside_one_of_the_same_script_is_known_by_its_folder_at_the_next_start() -> None:
    both = [
        Candidate(100 + number, ("python3", "train.py", "--steps", steps), folder=Path(folder))
        for number, (steps, folder) in enumerate([("100", "/runs/a"), ("200", "/runs/b")])
    ]
    for worker in select_workers(both, both):
        assert re.search(worker.pattern, "python3 train.py --steps 300 --resume")
        assert worker.conditions["cwd"] == str(worker.candidates[0].folder)
        assert worker.unclear == ()


def test_a_copy_that_starts_later_in_another_folder_is_no_part_of_the_run() -> None:
    first = Candidate(
        100, ("python3", "train.py"), folder=Path("/runs/a/out"), start_folder=Path("/runs/a")
    )
    (worker,) = select_workers([first], [first])
    assert worker.conditions == {"cwd": "/runs/a"}
    (anywhere,) = select_workers(
        [one := replace(first, folder=Path("/"), start_folder=None)], [one]
    )
    assert anywhere.conditions == {}


def test_copies_in_folders_beside_each_other_are_known_by_the_folder_above() -> None:
    both = [
        Candidate(100 + number, ("python3", "search.py"), folder=Path(f"/runs/a/{number}"))
        for number in range(2)
    ]
    (worker,) = select_workers(both, both)
    assert worker.conditions == {"cwd": "/runs/a"}


def test_a_pattern_is_no_longer_than_it_must_be() -> None:
    all_candidates = candidates("python3 /opt/train.py --lr 0.1 --seed 7", "bash")
    (worker,) = select_workers(all_candidates[:1], all_candidates)
    assert worker.pattern == (
        r"^(?:\S*/)?python[\d.]*(?: -[WX] ?\S+| -[A-Za-z]+)*? (?:\S*/)?train\.py(?: |$)"
    )


def test_a_program_given_as_text_is_not_every_program_of_its_interpreter() -> None:
    one = Candidate(100, ("python3", "-c", "import train; train.run()"))
    (worker,) = select_workers([one], [one])
    assert re.search(worker.pattern, one.command)
    assert not re.search(worker.pattern, "python3 evaluate.py")


def test_the_same_command_twice_is_one_worker() -> None:
    all_candidates = candidates("python3 search.py --study s", "python3 search.py --study s", "sh")
    (worker,) = select_workers(all_candidates[:2], all_candidates)
    assert len(worker.candidates) == 2
    check_apart((worker,), all_candidates)


def test_programs_that_differ_only_in_a_late_argument_are_distinguished() -> None:
    all_candidates = candidates("python3 search.py a one", "python3 search.py a two")
    selected = select_workers(all_candidates, all_candidates)
    assert [worker.name for worker in selected] == ["search-0", "search-1"]
    check_apart(selected, all_candidates)


def test_what_is_special_in_a_regular_expression_is_taken_as_it_is() -> None:
    all_candidates = candidates("python3 a+b.py --name x(1)", "python3 aab.py --name x1")
    check_apart(select_workers(all_candidates[:1], all_candidates), all_candidates)


def test_where_nothing_shorter_tells_them_apart_the_whole_command_does() -> None:
    all_candidates = candidates("python3 t.py a b c d e f", "python3 t.py z b c d e f")
    selected = select_workers(all_candidates, all_candidates)
    check_apart(selected, all_candidates)
