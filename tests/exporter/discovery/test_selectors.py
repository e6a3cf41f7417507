from __future__ import annotations

import re

import pytest

from trainwarden_exporter.discovery.programs import Program
from trainwarden_exporter.discovery.selectors import Selected, name_of, select


def programs(*commands: str) -> list[Program]:
    return [Program(100 + pid, tuple(line.split())) for pid, line in enumerate(commands)]


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/usr/bin/python3 -u /opt/run/rollout.py --name rollout-0", "rollout-0"),
        ("python3 train.py --lr 0.1", "train"),
        ("python -W ignore -m verl.trainer.main_ppo a=1", "main_ppo"),
        ("python3 -m areal.infra.rpc.rpc_server --role actor --worker-index 3", "actor-3"),
        ("torchrun --nproc-per-node 4 train.py", "torchrun"),
        ("PRIME-RL::Trainer", "PRIME-RL::Trainer"),
        ("python3 -c print(1)", "python3"),
        ("/opt/über/läufer --name=a/b", "a-b"),
    ],
)
def test_a_name_is_what_the_options_or_the_script_say(command: str, name: str) -> None:
    assert name_of(programs(command)[0]) == name


def check_apart(selected: tuple[Selected, ...], everything: list[Program]) -> None:
    """Each pattern finds the programs of its own worker and no other."""
    for worker in selected:
        found = {p.pid for p in everything if re.search(worker.pattern, p.command)}
        assert found == {p.pid for p in worker.programs}, worker.pattern


def test_programs_of_one_script_are_told_apart_by_their_options() -> None:
    everything = programs(
        "python3 rollout.py --name rollout-1 --inference http://h --folder /data/a",
        "python3 rollout.py --name rollout-11 --inference http://h --folder /data/a",
        "python3 trainer.py --name trainer --folder /data/a",
        "vim trainer.py",
        "tail -f /data/a/logs/rollout-1.log",
    )
    selected = select(everything[:3], everything)
    assert [worker.name for worker in selected] == ["rollout-1", "rollout-11", "trainer"]
    check_apart(selected, everything)


def test_a_pattern_is_no_longer_than_it_must_be() -> None:
    everything = programs("python3 /opt/train.py --lr 0.1 --seed 7", "bash")
    (worker,) = select(everything[:1], everything)
    assert worker.pattern == r"(?:^|[ /])train\.py(?: |$)"


def test_the_same_command_twice_is_one_worker() -> None:
    everything = programs("python3 search.py --study s", "python3 search.py --study s", "sh")
    (worker,) = select(everything[:2], everything)
    assert len(worker.programs) == 2
    check_apart((worker,), everything)


def test_programs_that_differ_only_in_a_late_argument_are_told_apart() -> None:
    everything = programs("python3 search.py a one", "python3 search.py a two")
    selected = select(everything, everything)
    assert [worker.name for worker in selected] == ["search-0", "search-1"]
    check_apart(selected, everything)


def test_what_is_special_in_a_regular_expression_is_taken_as_it_is() -> None:
    everything = programs("python3 a+b.py --name x(1)", "python3 aab.py --name x1")
    check_apart(select(everything[:1], everything), everything)


def test_where_nothing_shorter_tells_them_apart_the_whole_command_does() -> None:
    everything = programs("python3 t.py a b c d e f", "python3 t.py z b c d e f")
    selected = select(everything, everything)
    check_apart(selected, everything)
