"""The callbacks for frameworks, called as the frameworks call them.

The frameworks are stand-ins with what the callbacks import; tests/real runs the real ones.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from trainwarden import heartbeat

Calls = list[tuple[int | None, int | None, str | None, Mapping[str, float]]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """What was reported: step, total, phase, numbers."""
    writer = heartbeat.Writer()
    monkeypatch.setattr(writer, "start", lambda: None)
    monkeypatch.setattr(heartbeat, "_writer", writer)
    monkeypatch.delenv("RANK", raising=False)
    found: Calls = []
    monkeypatch.setattr(
        writer, "waiting", SimpleNamespace(append=lambda beat: found.append(beat[1:]))
    )
    return found


@pytest.fixture
def frameworks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules with the names that the callbacks import."""
    parts: dict[str, dict[str, Any]] = {
        "transformers": {"TrainerCallback": type("TrainerCallback", (), {})},
        "lightning": {},
        "lightning.pytorch": {},
        "lightning.pytorch.callbacks": {"Callback": type("Callback", (), {})},
        "ray": {},
        "ray.train": {},
    }
    for name, content in parts.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
        package, _, last = name.rpartition(".")
        if package:
            setattr(sys.modules[package], last, module)
    yield
    for name in [one for one in sys.modules if one.startswith("trainwarden.callbacks.")]:
        del sys.modules[name]


@pytest.mark.usefixtures("frameworks")
def test_a_trainer_of_transformers(calls: Calls) -> None:
    callback = importlib.import_module("trainwarden.callbacks.transformers").BeatCallback()
    state = SimpleNamespace(is_world_process_zero=True, global_step=0, max_steps=20)
    control = SimpleNamespace(should_evaluate=False, should_save=False)
    callback.on_train_begin(None, state, control)
    callback.on_step_begin(None, state, control)
    state.global_step = 10
    control.should_evaluate = control.should_save = True
    callback.on_step_end(None, state, control)
    callback.on_log(None, state, control, logs={"loss": 0.5, "step": 10, "text": "x"})
    callback.on_evaluate(None, state, control)
    callback.on_save(None, state, control)
    callback.on_train_end(None, state, control)
    assert calls == [
        (0, 20, "starting", {}),
        (None, None, "training", {}),
        (10, 20, "evaluating", {}),
        (None, None, None, {"loss": 0.5}),
        (None, None, "saving", {}),
        (None, None, "training", {}),
        (None, None, "finished", {}),
    ]


@pytest.mark.usefixtures("frameworks")
def test_a_trainer_of_transformers_that_evaluates_and_saves_at_the_end_of_an_epoch(
    calls: Calls,
) -> None:
    callback = importlib.import_module("trainwarden.callbacks.transformers").BeatCallback()
    state = SimpleNamespace(is_world_process_zero=True, global_step=10, max_steps=20)
    control = SimpleNamespace(should_evaluate=False, should_save=False)
    callback.on_step_end(None, state, control)
    control.should_save = True
    callback.on_epoch_end(None, state, control)
    callback.on_save(None, state, control)
    control.should_evaluate = True
    callback.on_epoch_end(None, state, control)
    assert [phase for _, _, phase, _ in calls] == [None, "saving", "training", "evaluating"]


@pytest.mark.usefixtures("frameworks")
def test_a_trainer_of_transformers_that_is_not_the_first_process_is_silent(calls: Calls) -> None:
    callback = importlib.import_module("trainwarden.callbacks.transformers").BeatCallback()
    state = SimpleNamespace(is_world_process_zero=False, global_step=1, max_steps=20)
    events = [name for name in dir(callback) if name.startswith("on_")]
    for event in events:
        getattr(callback, event)(None, state, SimpleNamespace())
    assert len(events) == 8
    assert calls == []


@pytest.mark.usefixtures("frameworks")
def test_a_trainer_of_lightning(calls: Calls) -> None:
    callback = importlib.import_module("trainwarden.callbacks.lightning").BeatCallback()
    trainer = SimpleNamespace(
        is_global_zero=True, global_step=0, max_steps=-1, sanity_checking=True
    )
    callback.on_validation_start(trainer, None)
    callback.on_validation_end(trainer, None)
    trainer.sanity_checking = False
    callback.on_train_start(trainer, None)
    callback.on_train_batch_start(trainer, None, None, 0)
    trainer.global_step = 1
    callback.on_train_batch_end(trainer, None, None, None, 0)
    callback.on_validation_start(trainer, None)
    callback.on_validation_end(trainer, None)
    callback.on_save_checkpoint(trainer, None, {})
    callback.on_fit_end(trainer, None)
    assert calls == [
        (0, None, "training", {}),
        (None, None, "training", {}),
        (1, None, None, {}),
        (None, None, "evaluating", {}),
        (None, None, "training", {}),
        (None, None, "saving", {}),
        (None, None, "finished", {}),
    ]


def test_a_study_of_optuna(calls: Calls) -> None:
    module = importlib.import_module("trainwarden.callbacks.optuna")
    ended, running = (
        SimpleNamespace(state=SimpleNamespace(is_finished=lambda ended=ended: ended))
        for ended in (True, False)
    )
    study = SimpleNamespace(get_trials=lambda **_: [ended, running, ended])
    module.BeatCallback(total=9)(study, SimpleNamespace(values=[0.25]))
    assert calls == [(2, 9, "training", {}), (None, None, None, {"value": 0.25})]


def test_a_storage_that_fails_does_not_end_the_study(calls: Calls) -> None:
    def fail(**_: object) -> None:
        raise RuntimeError("database is locked")

    module = importlib.import_module("trainwarden.callbacks.optuna")
    module.BeatCallback()(SimpleNamespace(get_trials=fail), SimpleNamespace(values=None))
    assert calls == []


@pytest.mark.usefixtures("frameworks")
@pytest.mark.parametrize("rank", [0, 1])
def test_a_worker_of_ray_train(calls: Calls, rank: int) -> None:
    reported: list[Any] = []
    train = sys.modules["ray.train"]
    context = SimpleNamespace(get_world_rank=lambda: rank)
    vars(train).update(
        get_context=lambda: context,
        report=lambda metrics, **options: reported.append((metrics, options)),
    )
    module = importlib.import_module("trainwarden.callbacks.ray_train")
    module.report({"loss": 0.5}, step=1, total=9)
    module.report({"loss": 0.4}, step=2, total=9, checkpoint="c")
    assert reported == [({"loss": 0.5}, {}), ({"loss": 0.4}, {"checkpoint": "c"})]
    assert calls == ([] if rank else [
        (1, 9, None, {"loss": 0.5}),
        (2, 9, None, {"loss": 0.4}),
        (None, None, "saving", {}),
        (None, None, "training", {}),
    ])  # fmt: skip
