"""Which processes are ranks, and where they write the dumps of their Flight Recorder."""

from __future__ import annotations

import os

import pytest

from trainwarden_exporter.processes.config import RunWorkers
from trainwarden_exporter.processes.matching import ProcessTree, WorkerKey
from trainwarden_exporter.processes.procfs import read_process
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
