"""A rung of a ladder that notifies the on-call, and goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.remediator.samples import FINGERPRINT, GIB, ROLLOUT, make_worker
from tests.remediator.stage import Scene, Stage

from trainwarden_exporter.config_file.loader import load
from trainwarden_exporter.exceptions import ConfigError
from trainwarden_remediator.alertmanager.api import AlertState
from trainwarden_remediator.config.playbooks import Condition, Playbook
from trainwarden_remediator.config.schema import Config
from trainwarden_remediator.exceptions import ObservationError

SOON = {"timeout": 5, "stable_for": 0}
STILL_LEAKING = {"memory_bytes": 9 * GIB, "processes": 1}


def playbooks(*rungs: dict[str, Any]) -> dict[str, Any]:
    content = {"condition": Condition.OVER_MEMORY_LIMIT, "rungs": list(rungs)}
    return {"restart_leaking_worker": Playbook.model_validate(content)}


RESTART = {"tries": 1, "verify": SOON}
CALL = {"action": "notify"}


def acts(scene: Scene) -> list[str]:
    """What was done, in order."""
    return [word for word in scene.journaled() if word in ("intent", "paged", "ladder_exhausted")]


async def test_the_on_call_is_paged_between_two_attempts(stage: Stage) -> None:
    scene: Scene
    ladder = playbooks(RESTART, CALL, RESTART)
    async with stage(cooldown=1, playbooks=ladder) as scene:
        scene.action.heal = STILL_LEAKING
        scene.hear()
        await scene.pass_time(300)
        assert acts(scene) == ["intent", "paged", "intent", "ladder_exhausted"]


async def test_a_ladder_that_ends_with_a_call_has_an_end(stage: Stage) -> None:
    scene: Scene
    async with stage(cooldown=1, playbooks=playbooks(RESTART, CALL)) as scene:
        scene.action.heal = STILL_LEAKING
        scene.hear()
        await scene.pass_time(300)
        assert acts(scene) == ["intent", "paged", "ladder_exhausted"]


async def test_a_ladder_that_only_calls_calls_once(stage: Stage) -> None:
    scene: Scene
    async with stage(playbooks=playbooks(CALL)) as scene:
        scene.hear()
        await scene.pass_time(1200)
        journaled = scene.journaled()
        assert journaled.count("paged") == journaled.count("awaiting_operator") == 1
        assert acts(scene).count("intent") == 0
        assert not scene.action.restarts


async def test_a_call_is_no_attempt(stage: Stage) -> None:
    scene: Scene
    async with stage(attempts=1, playbooks=playbooks(CALL, RESTART)) as scene:
        scene.hear()
        await scene.pass_time(120)
        assert acts(scene) == ["paged", "intent"]
        assert "healed" in scene.journaled()


async def test_nobody_is_called_when_the_trouble_is_seen_to_be_over(stage: Stage) -> None:
    scene: Scene

    def mend(scene: Scene) -> None:
        scene.observer.workers[ROLLOUT] = make_worker(memory_bytes=GIB)

    async with stage(before=mend, playbooks=playbooks(CALL, RESTART)) as scene:
        scene.hear()
        await scene.pass_time(60)
        assert acts(scene) == []


async def test_the_on_call_is_paged_when_the_worker_is_not_shown(stage: Stage) -> None:
    scene: Scene
    async with stage(
        before=lambda scene: scene.observer.workers.pop(ROLLOUT), playbooks=playbooks(CALL, RESTART)
    ) as scene:
        scene.hear()
        await scene.pass_time(60)
        assert acts(scene) == ["paged"]


async def test_the_on_call_is_paged_also_when_alertmanager_cannot_be_asked(stage: Stage) -> None:
    scene: Scene
    async with stage(playbooks=playbooks(CALL, RESTART)) as scene:
        scene.observer.deaf = ObservationError("no answer")
        scene.hear()
        await scene.pass_time(60)
        assert acts(scene) == ["paged"]


@pytest.mark.parametrize("state", [AlertState.SILENCED, AlertState.INHIBITED])
async def test_nobody_is_called_about_what_is_muted(stage: Stage, state: AlertState) -> None:
    scene: Scene
    async with stage(playbooks=playbooks(CALL, RESTART)) as scene:
        scene.observer.known[FINGERPRINT] = state
        scene.hear()
        await scene.pass_time(60)
        assert acts(scene) == []
        assert state in scene.journaled()


async def test_who_only_observes_calls_nobody(stage: Stage) -> None:
    scene: Scene
    async with stage(mode="observe", playbooks=playbooks(CALL, RESTART)) as scene:
        scene.hear()
        await scene.pass_time(60)
        assert acts(scene) == []
        assert "observe_mode" in scene.journaled()


CONFIG = """\
insecure: true
playbooks:
  call:
    condition: any
    {one}
"""


@pytest.mark.parametrize(
    "one",
    ["action: notify", "rungs: [{action: notify}]", "rungs: [{action: notify, target: trainer}]"],
)
def test_a_call_needs_no_target(one: str, tmp_path: Path) -> None:
    (tmp_path / "remediator.yml").write_text(CONFIG.format(one=one))
    playbook = load(tmp_path / "remediator.yml", Config).playbooks["call"]
    assert [(rung.action, rung.tries) for rung in playbook.ladder] == [("notify", 1)]


def test_an_operator_is_not_called_several_times_for_an_alert(tmp_path: Path) -> None:
    one = "rungs: [{action: notify, tries: 2}]"
    (tmp_path / "remediator.yml").write_text(CONFIG.format(one=one))
    with pytest.raises(ConfigError, match=r"remediator\.yml:5: .*runs once for an alert"):
        load(tmp_path / "remediator.yml", Config)
