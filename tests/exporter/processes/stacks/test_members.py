"""Which processes are ranks, and where they write the dumps of their Flight Recorder."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from trainwarden_exporter.processes.config import RunWorkers
from trainwarden_exporter.processes.matching import ProcessTree, WorkerKey
from trainwarden_exporter.processes.procfs import Identity, read_process
from trainwarden_exporter.processes.stacks.members import find_members

RUN = RunWorkers.model_validate(
    {
        "name": "night",
        "workers": [{"name": "trainer", "role": "trainer", "match": {"command": "train"}}],
    }
)


@pytest.mark.parametrize(
    ("variables", "recorder"),
    [
        ({"TORCH_FR_DUMP_TEMP_FILE": "/runs/new_"}, "/runs/new_"),
        ({"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/runs/old_"}, "/runs/old_"),
        ({"TORCH_FR_DUMP_TEMP_FILE": "runs/relative_"}, ""),
        ({}, ""),
    ],
)
def test_a_rank_has_the_variables_of_its_job(variables: dict[str, str], recorder: str) -> None:
    process = read_process(os.getpid())
    assert process is not None
    trees = {WorkerKey("night", "trainer"): ProcessTree((process,), (process,))}
    of_job = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}
    of_job |= {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "/runs/pipe_"} | variables

    (found,) = find_members(RUN, trees, read_environment=lambda _: of_job)

    assert (found.rank, found.world, found.local_world) == (3, 8, 4)
    assert (found.recorder, found.recorder_pipe) == (recorder, "/runs/pipe_")


def test_the_workers_of_ray_train_make_the_steps_of_its_driver() -> None:
    driver = read_process(os.getpid())
    assert driver is not None
    named = [
        replace(driver, identity=Identity(pid, 1), parent_pid=parent, name=name)
        for pid, parent, name in (
            (2, driver.pid, "raylet"),
            (3, 2, "ray::RayTrainWo"),
            (4, 3, "ray::RayTrainWo"),  # of its data loader, forked
            (5, 3, "python"),  # of its data loader, which has the variables of its rank
        )
    ]
    key = WorkerKey("night", "trainer")
    trees = {key: ProcessTree((driver,), (driver, *named))}
    variables = {5: {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}}

    found = find_members(RUN, trees, read_environment=lambda pid: variables.get(pid, {}))

    assert [one.identity.pid for one in found if one.is_trainer] == [3]
    assert all(one.with_ray for one in found)
    trees = {key: ProcessTree((driver,), (driver, *named[:1]))}
    (first, second) = find_members(RUN, trees, read_environment=lambda _: {})
    assert (first.identity, first.is_trainer) == (driver.identity, True)
    assert not first.with_ray
    assert not second.with_ray
