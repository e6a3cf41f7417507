"""A worker is asked for a last checkpoint before it is restarted, where it can be."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.remediator.fake_clock import InlineThread
from tests.remediator.fakes import BlindKin, FakeObserver
from tests.remediator.process_yard import Yard, alive
from tests.remediator.samples import NOW, ROLLOUT, make_config, make_setup
from tests.remediator.stage import Scene

from trainwarden_exporter.processes.procfs import Identity
from trainwarden_remediator.actions.base import Confirm, confirm_always
from trainwarden_remediator.config.restart_methods.base import SaveRequest
from trainwarden_remediator.engine.checkpoint_request import SaveResult, request_checkpoint
from trainwarden_remediator.engine.context import EngineContext
from trainwarden_remediator.exceptions import ActionDeferredError, ActionError, JournalError
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.observation.model import RunState
from trainwarden_remediator.runtime.clock import WallClock

SAVES = """
import signal, sys, time
signal.signal(signal.SIGUSR1, lambda *_: print("saving", flush=True))
print("up", flush=True)
time.sleep(600)
"""
SIGNAL = SaveRequest(signal="SIGUSR1", timeout=0.01)
HANDLES_NOTHING = "import time; print('up', flush=True); time.sleep(600)"


def asked(yard: Yard, journal: Journal, program: str) -> Any:
    """A worker that runs `program`, and how to ask it; the exporter shows nothing of its run."""
    worker = yard.run(program)
    roots = [root.identity for root in yard.tree().roots]
    context = EngineContext(
        setup=make_setup(yard.folder),
        journal=journal,
        observer=FakeObserver(),
        clock=WallClock(),
        tracker=BlindKin(),
        thread_factory=InlineThread,
    )

    async def ask(request: SaveRequest = SIGNAL, confirm: Confirm = confirm_always) -> SaveResult:
        found = await request_checkpoint(
            *(request, ROLLOUT, roots, None), instances=roots, context=context, confirm=confirm
        )
        assert found is not None
        return found

    return worker, ask


async def test_a_worker_that_handles_the_signal_is_asked_to_save(
    yard: Yard, journal: Journal
) -> None:
    worker, ask = asked(yard, journal, SAVES)
    assert (await ask()).text == "no newer checkpoint within 0.01 s"
    assert worker.stdout.readline() == "saving\n"
    assert alive(worker.pid)


async def test_a_hold_while_the_request_is_recorded_is_heeded(yard: Yard, journal: Journal) -> None:
    worker, ask = asked(yard, journal, SAVES)

    def confirm() -> None:
        assert [event.kind for event in journal.newest_events(9)] == ["save_requested"]
        raise ActionDeferredError("held by root")

    assert await ask(confirm=confirm) == SaveResult("not asked: held by root", sent=False)
    worker.terminate()
    assert worker.stdout.read() == ""


async def test_a_worker_that_would_die_of_it_is_not_nor_is_that_announced(
    yard: Yard, journal: Journal
) -> None:
    worker, ask = asked(yard, journal, HANDLES_NOTHING)
    assert (await ask()).text == "not asked: the worker does not handle SIGUSR1"
    assert alive(worker.pid)
    assert journal.newest_events(9) == ()


async def test_a_request_that_failed_was_not_made_and_is_made_again(
    yard: Yard, journal: Journal, tmp_path: Path
) -> None:
    _, ask = asked(yard, journal, HANDLES_NOTHING)
    log = tmp_path / "asked"

    async def came_of(script: str) -> str:
        command = ("sh", "-c", script, "sh", str(log))
        found: SaveResult = await ask(SaveRequest(command=command, timeout=2))
        about = {"run": ROLLOUT.run, "worker": ROLLOUT.worker}
        journal.record_event("save_result", **about, came=found.text, sent=found.sent)
        return found.text

    assert (await came_of("exit 1")).startswith("not asked: ")
    assert await came_of('echo once >> "$1"') == "no newer checkpoint within 2 s"
    assert (await came_of('echo again >> "$1"')).startswith("already requested: ")
    assert log.read_text() == "once\n"


async def test_a_request_without_an_answer_was_made(yard: Yard, journal: Journal) -> None:
    worker, ask = asked(yard, journal, HANDLES_NOTHING)
    found = await ask(SaveRequest(command=("sleep", "60"), timeout=0.2))
    assert found.text == "no newer checkpoint within 0.2 s"
    assert alive(worker.pid)


def saving(scene: Scene, *, command: list[str], checkpoint: float = 50) -> None:
    """The worker may be asked by `command`, and its run has saved that step."""
    config = scene.setup.config
    target = config.targets[0]
    request = SaveRequest.model_validate({"command": command, "timeout": 30})
    changed = target.model_copy(update={"save": request})
    targets = (changed, *config.targets[1:])
    scene.context.setup = replace(
        scene.setup, config=config.model_copy(update={"targets": targets})
    )
    vars(scene.engine._executor._tracker)["roots"] = lambda _: [scene.action.identity]
    scene.observer.runs = {"demo": RunState(step=57.0, checkpoint=checkpoint)}


def came(scene: Scene) -> list[str]:
    return [e.facts["came"] for e in scene.journal.newest_events(1000) if e.kind == "save_result"]


async def test_a_newer_checkpoint_is_waited_for(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainwarden_remediator.engine.checkpoint_request.is_alive", lambda _: True)
    async with stage(before=lambda scene: saving(scene, command=["true"])) as scene:
        scene.hear(starts_at=NOW - 20)
        await scene.clock.advance(10)
        assert scene.action.restarts == []
        assert "save_requested" in scene.journaled()
        scene.observer.runs = {"demo": RunState(step=58.0, checkpoint=58.0, saving=True)}
        await scene.clock.advance(5)
        assert scene.action.restarts == []
        scene.observer.runs = {"demo": RunState(step=58.0, checkpoint=58.0)}
        await scene.clock.advance(2)
        assert scene.action.restarts == [1]
        assert came(scene) == ["saved step 58"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["true"], "no newer checkpoint within 30 s"),
        (["false"], "not asked: false: Command '('false',)' returned non-zero exit status 1."),
    ],
)
async def test_it_is_restarted_all_the_same_when_there_is_none(
    stage: Any, monkeypatch: pytest.MonkeyPatch, command: list[str], message: str
) -> None:
    monkeypatch.setattr("trainwarden_remediator.engine.checkpoint_request.is_alive", lambda _: True)
    async with stage(before=lambda scene: saving(scene, command=command)) as scene:
        scene.hear(starts_at=NOW - 20)
        await scene.clock.advance(40)
        assert scene.action.restarts == [1]
        assert came(scene) == [message]


async def test_an_operator_who_holds_meanwhile_is_heeded(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainwarden_remediator.engine.checkpoint_request.is_alive", lambda _: True)
    async with stage(before=lambda scene: saving(scene, command=["true"])) as scene:
        scene.hear(starts_at=NOW - 20)
        await scene.clock.advance(10)
        (scene.folder / "hold").touch()
        await scene.clock.advance(60)
        assert scene.action.restarts == []
        (event,) = (e for e in scene.journal.newest_events(99) if e.kind == "result")
        assert event.facts == {"result": "interrupted", "found": "held"}


async def test_where_the_journal_cannot_be_written_no_save_is_requested_and_it_is_tried_again(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise JournalError("disk full")

    monkeypatch.setattr("trainwarden_remediator.engine.checkpoint_request.is_alive", lambda _: True)
    async with stage(before=lambda scene: saving(scene, command=["true"])) as scene:
        with monkeypatch.context() as patch:
            patch.setattr(scene.journal, "record_event", refuse)
            scene.hear(starts_at=NOW - 20)
            await scene.clock.settle()
        (event,) = (e for e in scene.journal.newest_events(99) if e.kind == "result")
        found = "no checkpoint requested: disk full"
        assert event.facts == {"result": "interrupted", "found": found}
        assert scene.action.restarts == []
        await scene.clock.advance(60)
        assert len(scene.action.restarts) == 1
        assert came(scene) == ["no newer checkpoint within 30 s"]


async def test_it_is_asked_once_however_long_what_came_of_it_cannot_be_written_down(
    stage: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("trainwarden_remediator.engine.checkpoint_request.is_alive", lambda _: True)
    asked = tmp_path / "asked"
    command = ["sh", "-c", f"echo asked >> {asked}"]
    async with stage(before=lambda scene: saving(scene, command=command)) as scene:
        full = True
        note = scene.journal.record_event

        def refuse(kind: str, **facts: Any) -> None:
            if full and kind == "save_result":
                raise JournalError("disk full")
            note(kind, **facts)

        monkeypatch.setattr(scene.journal, "record_event", refuse)
        scene.hear(starts_at=NOW - 20)
        await scene.clock.advance(120)
        assert scene.done() == ["alert", "intent", "save_requested"]
        full = False
        await scene.clock.advance(20)
        assert scene.done() == [
            *("alert", "intent", "save_requested", "save_result", "stop", "start", "done", "healed")
        ]
        assert came(scene) == ["no newer checkpoint within 30 s"]
        assert asked.read_text() == "asked\n"


def asked_before(
    scene: Scene,
    tmp_path: Path,
    *,
    ago: float,
    subject: Identity | None = None,
    worker: str = "",
) -> None:
    """A program that died so many seconds ago had announced that it would ask."""
    saving(scene, command=["sh", "-c", f"echo asked >> {tmp_path / 'asked'}"])
    about = {
        "run": "demo",
        "worker": worker or "rollout-0",
        "subjects": [subject or scene.action.identity],
    }
    scene.clock.pass_by(-ago)
    scene.journal.record_event("save_requested", **about, checkpoint=50.0)
    scene.clock.pass_by(ago)


async def test_what_a_crash_left_asked_is_waited_for_and_not_asked_again(
    stage: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("trainwarden_remediator.engine.checkpoint_request.is_alive", lambda _: True)
    async with stage(before=lambda scene: asked_before(scene, tmp_path, ago=20)) as scene:
        scene.hear(starts_at=NOW - 20)
        await scene.clock.advance(9)
        assert scene.action.restarts == []
        await scene.clock.advance(3)
        assert scene.action.restarts == [1]
        assert came(scene) == ["already requested: no newer checkpoint within 30 s"]
        assert not (tmp_path / "asked").exists()


async def test_what_was_saved_meanwhile_is_what_was_asked_for(
    stage: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def saved(scene: Scene) -> None:
        asked_before(scene, tmp_path, ago=20)
        scene.observer.runs = {"demo": RunState(step=58.0, checkpoint=58.0)}

    monkeypatch.setattr("trainwarden_remediator.engine.checkpoint_request.is_alive", lambda _: True)
    async with stage(before=saved) as scene:
        scene.hear(starts_at=NOW - 20)
        await scene.clock.advance(1)
        assert scene.action.restarts == [1]
        assert came(scene) == ["already requested: saved step 58"]


@pytest.mark.parametrize(
    "other",
    [
        {"ago": 20, "subject": Identity(4242, 18)},
        {"ago": 20, "worker": "trainer"},
        {"ago": 601},
    ],
    ids=["its predecessor", "another worker", "too long ago"],
)
async def test_but_a_worker_without_a_request_is(
    stage: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, other: dict[str, Any]
) -> None:
    monkeypatch.setattr("trainwarden_remediator.engine.checkpoint_request.is_alive", lambda _: True)
    async with stage(before=lambda scene: asked_before(scene, tmp_path, **other)) as scene:
        scene.hear(starts_at=NOW - 20)
        await scene.clock.advance(40)
        assert came(scene) == ["no newer checkpoint within 30 s"]
        assert (tmp_path / "asked").read_text() == "asked\n"


@pytest.mark.parametrize(
    "save", [{}, {"signal": "SIGUSR1", "command": ["x"]}, {"signal": "SIGKILL"}, {"command": []}]
)
def test_a_request_that_makes_no_sense_is_refused(tmp_path: Path, save: dict[str, Any]) -> None:
    process = {"start": [sys.executable]}
    target = {"run": "demo", "worker": "rollout-0", "process": process, "save": save}
    with pytest.raises(ValidationError):
        make_config(tmp_path, targets=[target])


async def test_a_worker_that_cannot_be_looked_at_is_waited_for(
    yard: Yard, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Identity) -> bool:
        raise ActionError("too many open files")

    monkeypatch.setattr("trainwarden_remediator.engine.checkpoint_request.is_alive", fail)
    _, ask = asked(yard, journal, SAVES)
    assert (await ask()).text == "no newer checkpoint within 0.01 s"
