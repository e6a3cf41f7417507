"""Each example line of each framework matches the expected patterns, with RE2 as in production."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import pytest
import re2  # type: ignore[import-untyped]

from framework_lines import LINES, Line
from trainwarden_exporter.frameworks import FRAMEWORKS, get_framework
from trainwarden_exporter.frameworks.base import LinePattern, Phase
from trainwarden_exporter.frameworks.error_lines import COMMON_ERROR_PATTERNS
from trainwarden_exporter.logs.pattern_search import compile_patterns, gauge_values
from trainwarden_exporter.logs.re2_patterns import RegexSet


def hits(patterns: Iterable[LinePattern], text: str) -> dict[str, Mapping[str, str]]:
    """Returns the matched groups, by pattern."""
    found: dict[str, Mapping[str, str]] = {}
    for pattern in patterns:
        match = re2.search(pattern.regex, text)
        if match is not None:
            found[pattern.name] = RegexSet([pattern.regex]).groups(0, text.encode())
    return found


@pytest.mark.parametrize(
    ("framework", "line"),
    [(name, line) for name, lines in LINES.items() for line in lines],
    ids=lambda one: one if isinstance(one, str) else one.plain[-60:],
)
def test_a_line_matches_exactly_the_expected_patterns(framework: str, line: Line) -> None:
    assert hits(get_framework(framework).lines, line.plain) == line.hits
    assert hits(COMMON_ERROR_PATTERNS, line.plain).keys() == line.shared


@pytest.mark.parametrize("framework", LINES)
def test_the_pattern_set_finds_in_bytes_what_each_pattern_finds_in_text(framework: str) -> None:
    patterns = (*get_framework(framework).lines, *COMMON_ERROR_PATTERNS)
    together = RegexSet([pattern.regex for pattern in patterns])
    for line in LINES[framework]:
        found = {patterns[place].name for place in together.matching(line.plain.encode())}
        assert found == {*line.hits, *line.shared}


@pytest.mark.parametrize("framework", LINES)
def test_every_pattern_of_a_framework_has_an_example_line(framework: str) -> None:
    shown = {name for line in LINES[framework] for name in line.hits}
    assert {pattern.name for pattern in get_framework(framework).lines} == shown


def test_every_framework_with_patterns_has_example_lines() -> None:
    assert {one.name for one in FRAMEWORKS if one.lines} == {*LINES, "generic"}


PHASES = {
    "areal": "resumed:starting step:training finished:finished",
    "prime_rl": "resumed:starting waiting:waiting_for_rollouts saving:saving step:training "
    "step_before_0_6:training finished:finished",
    "verl": "resumed:starting step:training saving:saving finished:finished",
    "openrlhf": "resumed:starting step:training evaluating:evaluating",
    "trl": "resumed:starting logged:training bar:training saving:saving saving_bar:saving "
    "evaluating:evaluating evaluation_bar:evaluating finished:finished",
    "slime": "resumed:starting training:training saving:saving waiting:waiting_for_rollouts "
    "updating_weights:updating_weights",
    "nemo_rl": "step:training training:training generating:waiting_for_rollouts "
    "refit:updating_weights evaluating:evaluating saving:saving finished:finished",
    "torchtitan": "started:starting step:training saving:saving finished:finished",
    "lightning": "resumed:starting evaluating:evaluating finished:finished early_stopped:finished",
    "optuna": "",
    "skyrl": "resumed:starting step:training training:training generating:waiting_for_rollouts "
    "saving:saving syncing:updating_weights evaluating:evaluating finished:finished",
    "ray_train": "started:training report:training restarting:starting finished:finished",
    "megatron": "iteration:training resumed:starting saving:saving evaluating:evaluating "
    "finished:finished",
    "deepspeed": "step:training pipeline_step:training iteration:training resumed:starting "
    "saving:saving",
}


@pytest.mark.parametrize("framework", PHASES)
def test_lines_begin_the_expected_phases(framework: str) -> None:
    begun = {
        f"{one.name}:{one.phase}" for one in get_framework(framework).lines if one.phase is not None
    }
    assert begun == set(PHASES[framework].split())


LASTING = {Phase.SAVING, Phase.EVALUATING, Phase.UPDATING_WEIGHTS, Phase.WAITING_FOR_ROLLOUTS}


@pytest.mark.parametrize("framework", PHASES)
def test_every_lasting_phase_is_ended_by_some_line(framework: str) -> None:
    """Otherwise a run would seem to save or to wait forever."""
    lines = get_framework(framework).lines
    begun = {one.phase for one in lines if one.phase in LASTING}
    trained = any(one.phase is Phase.TRAINING for one in lines)
    assert trained or begun <= {one.ends for one in lines}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("  0%|          | 41/100000 [00:29<20:12:33,  1.37it/s]", {"bar": ("41", "100000")}),
        ("Training:  45%|####5     | 45/100 [00:29<00:33,  1.6s/it]", {"bar": ("45", "100")}),
        (
            "Epoch 2/3:  45%|████▌     | 27/60 [00:02<00:03, 9.4it/s, loss=0.01]",
            {"bar": ("27", "60"), "epoch": (), "epoch_word": ()},
        ),
        ("Training ━━━━━━━━━━╸━━━━━━━━━ 41/100 0:00:12", {"rich_bar": ("41", "100")}),
        ("step 10 loss 0.5", {"step": ("10",)}),
        ("[2026-11-23 01:02:03] INFO: step=10/200 | loss=0.5", {"step": ("10", "200")}),
        ("{'global_step': 10, 'loss': 0.5}", {"step": ("10",)}),
        ("2026-11-23 01:02:03,123 - INFO - Iteration 7: loss nan", {"step": ("7",)}),
        ("Step:   180/  400 | Loss:      nan", {"step": ("180", "400")}),
        ("step    12 | loss 0.5", {"step": ("12",)}),
        ("step 1,090/5,000 loss 0.0028", {"step": ("1,090", "5,000")}),
        ("step 1,090, loss 0.0028", {"step": ("1,090",)}),
        ("INFO:root:step 12 loss 0.5", {"step": ("12",)}),
        ("INFO:__main__:Step 12: loss 0.5", {"step": ("12",)}),
        ("WARNING:root:step 12 loss 0.5", {"step": ("12",)}),
        ("[default0]:step 12 loss 0.5", {"step": ("12",)}),
        ("[rank0]: step 12 loss 0.5", {"step": ("12",)}),
        ("[actor] step 12 loss 0.5", {"step": ("12",)}),
        ("(RayTrainWorker pid=1) step 12 loss 0.5", {"step": ("12",)}),
        ("(RayTrainWorker pid=1, ip=10.0.0.2) INFO:root:step 12", {"step": ("12",)}),
        ("2026-11-29 10:00:00,123 - train - INFO - step 12", {"step": ("12",)}),
        ("2026-11-29 10:00:00,123 - INFO - train - step 12", {"step": ("12",)}),
        ("2026-11-29 10:00:00.123 | INFO     | __main__:f:3 - step 12", {"step": ("12",)}),
        ("[2026-11-29 10:00:00,123] [INFO] [train.py:3:f] step=12", {"step": ("12",)}),
        ("I1129 10:00:00.123456 140 train.py:33] step 12 loss 0.5", {"step": ("12",)}),
        ('{"loss": 1.2, "step": 12}', {"step": ("12",)}),
        ('{"time": "2026-11-29T10:00:00", "step": 12, "loss": 1.2}', {"step": ("12",)}),
        ('{"lr": 0.1, "train_loss": 1.2, "step": 12}', {"step": ("12",)}),
        ('{"ts":"2026-11-29 10:00:00,123","step":12}', {"step": ("12",)}),
        ("[INFO] [src/train_gpt.py:12] step 3", {"step": ("3",)}),
        ("INFO | src.train:main:12 - step 3", {"step": ("3",)}),
        ("{'epoch': 1, 'global_step': 12}", {"step": ("12",), "epoch": (), "epoch_word": ()}),
        ("Train Epoch: 3 [1200/60000 (2%)]\tLoss: 2.1", {"epoch": (), "epoch_word": ()}),
        ("epoch 3 loss 0.5", {"epoch": (), "epoch_word": ()}),
        (
            "Map:  42%|████▏     | 420/1000 [00:00<00:00, 4242.42 examples/s]",
            {"other_bar": ("420", "1000")},
        ),
        (
            "Tokenizing train dataset: 100%|████| 4000/4000 [00:03<00:00, 1102.77 examples/s]",
            {"other_bar": ("4000", "4000")},
        ),
        (
            "Adding EOS to train dataset:   0%|          | 0/4000 [00:00<?, ? examples/s]",
            {"other_bar": ("0", "4000")},
        ),
        ("train:   0%|          | 0/40 [00:00<?, ?it/s]", {"bar": ("0", "40")}),
        ("train:  5%|▌         | 2/40 [00:01<00:19,  1.39it/s, loss=0.5]", {"bar": ("2", "40")}),
        ("train:  5%|▌         | 2/40 [1:00:01<19:00:00, 1800.5s/it]", {"bar": ("2", "40")}),
        ("train:  5%|▌         | 2/40 [00:01<00:19, 39.5 steps/s]", {"bar": ("2", "40")}),
        ("train:  5%|▌         | 2/40 [00:01<00:19, loss=0.5]", {"bar": ("2", "40")}),
        ("train:  5%|▌         | 2/40 [00:01<00:19]", {"bar": ("2", "40")}),
        (
            "Evaluating:  42%|████▏     | 420/1000 [00:00<00:00, 42.4it/s]",
            {"other_bar": ("420", "1000")},
        ),
        ("Validation ━━━━╸━━━━━━━ 3/10 0:00:02", {"other_rich_bar": ("3", "10")}),
        ("  2%|▏         | 1/50 [00:00<00:02, 21.10it/s]\x0b", {}),
        ("saved checkpoint at step 100", {}),
        ("eval step 5 loss 0.1", {}),
        ("at this step 12 files were found", {}),
        ("INFO:root:at this step 12 files were found", {}),
        ("INFO: Warning: step 12 took long", {}),
        ("WARNING: step 12 took long", {}),
        ("[critic] step 12 loss 0.5", {}),
        ("[rank1]: step 12 loss 0.5", {}),
        ("trial 3: step 12", {}),
        ("INFO:root:eval step 5 loss 0.1", {}),
        ('{"event": "saved", "step": 12}', {}),
        ('{"model": "a", "loss": "mse", "step": 12}', {}),
        ("step 1,090/5,000", {"step": ("1,090", "5,000")}),
        ("step 990/5,000, loss 0.5", {"step": ("990", "5,000")}),
        ("step 1,090 of 1,005,000: loss 0.5", {"step": ("1,090", "1,005,000")}),
        ("step 1,090 | loss 0.5", {"step": ("1,090",)}),
        ("step 1,090 train_loss 0.5", {"step": ("1,090",)}),
        ("step 3/100,250,2.5", {"step": ("3", "100")}),
        ("step 10,510,2.314", {"step": ("10",)}),
        ("step 10,0.512", {"step": ("10",)}),
        ("step 10,510.5", {"step": ("10",)}),
        ("step 0,512", {"step": ("0",)}),
        ("step 1090,512,100", {"step": ("1090",)}),
        ("step 12, 512", {"step": ("12",)}),
        ("step 3,100 tokens", {}),
        ("step 1,090", {"step": ("1,090",)}),
        ("step=1,090,loss=0.5", {"step": ("1,090",)}),
        ("step 1,090 (12.5s)", {"step": ("1,090",)}),
        ("step 1,090 time 12ms", {"step": ("1,090",)}),
        ("step 10,510,250", {}),
        ("{'name': 'a', 'steps': {'step': 12}}", {}),
        ("INFO - eval - step 12", {}),
        ("INFO - val - step 12", {}),
        ("eval - INFO - step 12", {}),
        ("INFO:evaluate:step 12", {}),
        ("INFO:train.eval:step 12", {}),
        ("[INFO] [eval.py:12] step 3", {}),
        ("I1129 10:00:00.123456 140 eval.py:33] step 12 loss 0.5", {}),
        ("2026-11-29 10:00:00.123 | INFO     | app.eval:f:3 - step 12", {}),
        ('{"val_loss": 1.2, "step": 12}', {}),
        ('{"eval/loss": 1.2, "step": 12}', {}),
        ('{"timestamp":1,"event":"download","step":2}', {}),
        ("step 0.5 s", {}),
    ],
)
def test_a_run_without_framework_is_read_by_common_forms(
    line: str, found: dict[str, tuple[str, ...]]
) -> None:
    shown = generic_groups(line)
    read = {
        name: tuple(groups[key] for key in ("step", "total") if key in groups)
        for name, groups in shown.items()
    }
    if read.keys() & {"bar", "rich_bar"}:  # a bar of the training is one of something, too
        read = {name: of for name, of in read.items() if not name.startswith("other_")}
    assert read == found


@pytest.mark.parametrize(
    "line",
    [
        "2026-11-29 23:18:34,841 INFO my.train: step=63 loss=1.28",
        "2026-11-29 23:18:34,841 INFO my.train step=63 loss=1.28",
        "2026-11-29 23:18:34,841 INFO my.train: step 63 loss 1.28",
        "2026-11-29 23:18:34,841 INFO __main__: step 63",
        "2026-11-29 23:18:34,841 __main__ INFO: step 63",
        "2026-11-29 23:18:34,841 INFO __main__ step 63",
        "[2026-11-29 23:45:59,709][__main__][INFO] - step=63 loss=1.5",
        "[2026-11-29 23:45:59,709][my-exp.train2][INFO] - step=63 loss=1.5",
        "INFO 11-29 23:18:34 trainer.py:42] step 63",
        "INFO 11-29 23:18:34 [trainer.py:42] step 63 loss 1.5",
        "[rank0]: step 63",
        "[rank0]:[I1129 23:18:34.123 train.py:12] step 63",
        "(RayTrainWorker pid=123) step 63",
        "(RayTrainWorker pid=3, ip=10.0.0.1) 2026-11-29 23:18:34 INFO my_train.py:12 -- step 63",
        "I1129 23:18:34.123456 140 trainer.py:12] step 63",
        "2026-11-29 23:18:34.841 | INFO     | __main__:main:12 - step 63",
        "2026-11-29 23:18:34.841 | INFO     | my_pkg.loop-2:run:12 - step 63",
        "2026-11-29T23:18:34.841Z [info     ] step 63 loss=1.5",
        "2026-11-29T23:18:34.841Z [info     ] training                       loss=1.5 step=63",
        "timestamp='2026-11-29T23:18:34' level='info' event='training' step=63 loss=1.5",
        "ts=2026-11-29T23:18:34Z level=info msg=train step=63 loss=1.5",
        "event='train' step=63",
        'level=info msg="one step" step=63 loss=1.2',
        "11/29/2026 23:18:34 - INFO - __main__ -   step 63",
        "trainer-1  | step 63",
        "trainer-1  | 2026-11-29 23:18:34,841 INFO my.train: step=63 loss=1.28",
        "2026-11-29T23:18:34.841234Z stdout F step 63 loss=1.5",
        "[pod/trainer-0/main] step 63",
        "Epoch 1, Step 63, Loss: 1.5",
        "Epoch 1 | Step 63/500",
        "[epoch 1] [step 63/500]",
        "epoch: 1 step: 63",
        "Epoch [1/10], Step [63/600], Loss: 0.5",
        "Epoch 1/10 - step 63/600 - loss 0.5",
        "2026-11-29 23:18:34,841 INFO my.train: Epoch 1 Step 63 loss 0.3",
        "[11/29/26 23:18:34] INFO     step 63 loss=1.5                 train.py:12",
        "                    INFO     step 63 loss=1.5                 train.py:12",
        "INFO:my_app.loop:step 63 loss 1.5",
        "[2026-11-29 23:18:34,841] [INFO] [logging.py:96:log_dist] [Rank 0] step=63, skipped=0",
        "[2026-11-29 23:18:34,841][my.train][INFO] Step: 63, loss: 0.5",
        '{"level": "info", "metrics": {"step": 63, "loss": 1.5}}',
        '{"time": "2026-11-29T23:18:34", "data": {"loss": 1.5, "step": 63}}',
        '{"time": "2026-11-29T23:18:34", "metrics": {"step": 63}}',
        '{"step": 63, "metrics": {"loss": 1.5}}',
        '{"epoch": 1, "metrics": {"loss": 1.5}, "step": 63}',
        '{"timestamp": "2026-11-29 23:18:34", "level": "INFO", "message": "step 63 loss 1.5"}',
        '{"log":"step 63 loss=1.5\\n","stream":"stdout","time":"2026-11-29T23:18:34Z"}',
        "Nov 29 23:18:34 host1 python[123]: step 63 loss 1.5",
        "Sun Nov 29 23:18:34 2026 INFO step 63",
        "2026-11-29 23:18:34,841 - my.train - INFO - Step: 63/500, Loss: 1.3",
        "2026-11-29 23:18:34 WARNING __main__: step 63 loss 1.5",
        "2026-11-29 23:18:34,841 [MainThread] [INFO ] my.train - step 63",
        "[23:18:34] INFO my.train: step 63",
        "<2026-11-29 23:18:34> step 63",
        "INFO: step 63",
        "INFO:     step 63",
        "[INFO] global_step=63 loss=1.3",
        "INFO|my.train|step 63",
        "2026-11-29 23:18:34,841|INFO|my.train|step 63 loss 1.5",
        "[INFO|trainer.py:2128] 2026-11-29 23:18:34,841 >> step 63",
        "2026-11-29 23:18:34 PM INFO step 63",
        "23:18:34 | step 63 | loss 1.2",
        "/home/me/eval/train.py INFO: step 63",
        "my-train-job INFO step 63",
    ],
)
def test_a_step_is_read_behind_the_prefix_of_any_logger(line: str) -> None:
    found = generic_groups(line)["step"]
    assert found["step"] == "63"
    assert found.get("epoch", "1") == "1"


@pytest.mark.parametrize(
    ("line", "pattern"),
    [
        ("  step 63/600 loss=1.8712", "indented_step"),
        ("    step 63 loss 1.87", "indented_step"),
        ("\tStep [63/600], Loss: 1.5", "indented_step"),
        ("  [63/600] step 63: loss 1.5", None),
        ("  iter 63/600 | lr 1e-4 | loss 1.5", "indented_step"),
        ("  step 63/600, grad_norm=0.9, train_loss=1.5", "indented_step"),
        ("  epoch 1 step 63/600 loss=1.5", "indented_step"),
        ("{'loss': nan, 'grad_norm': 1.2, 'epoch': 0.4} step 63/2000", "step_after_loss"),
        ("{'loss': 1.5, 'epoch': 0.5} step 63", "step_after_loss"),
        ("2026-11-29 23:18:34,841 INFO my.train: {'loss': 1.5} | step=63", "step_after_loss"),
        ("2026-11-29 23:18:34,841 INFO my.eval: {'loss': 1.5} | step=63", None),
        ("{'eval_loss': 1.5, 'epoch': 0.5} step 63/2000", None),
        ("  step 63/600 val_loss=1.5", None),
        ("  step 63 of the proof", None),
        ("  step 63: the loss of energy is 1.5", None),
        ("  best step 63/600 loss=1.5", None),
        ("    return step 63 loss 1.5", None),
        ("{'loss': 1.5} took one step 63", None),
    ],
)
def test_a_step_is_read_indented_and_behind_a_record_where_the_loss_is_beside_it(
    line: str, pattern: str | None
) -> None:
    found = generic_groups(line)
    steps = {name: groups["step"] for name, groups in found.items() if "step" in groups}
    assert steps == ({} if pattern is None else {pattern: "63"})


@pytest.mark.parametrize(
    "line",
    [
        "INFO: Warning: step 12 took long",
        "2026-11-29 23:18:34,841 INFO my.eval: step 12 loss 1.5",
        "2026-11-29 23:18:34,841 INFO my.val: step 12 loss 1.5",
        "[2026-11-29 23:45:59,709][eval][INFO] - step=12 loss=1.5",
        "[rank1]:[I1129 23:18:34.123 train.py:12] step 12",
        "[rank3]: step 12",
        "(RolloutWorker pid=3) step 12",
        "(EvalWorker pid=3) step 12",
        "2026-11-29 23:18:34,841 INFO Evaluator: step 12 loss 1.5",
        "2026-11-29 23:18:34,841 INFO finished step 12",
        "2026-11-29 23:18:34,841 INFO Saved step 12",
        "2026-11-29 23:18:34,841 INFO at step 12",
        "2026-11-29 23:18:34,841 INFO Then, step 12 is",
        "event='saved' step=12",
        'level=info msg="checkpoint saved" step=12',
        "1. Answer: step 12",
        "2. Note: step 12",
        "Answer: step 12",
        "Sample: step 12",
        "The next step 12 is",
        "In step 12 we add",
        "    step 12",
        "def f(step=12):",
        "x = step 12",
        "trainer.fit(step=12)",
        "- step 12: add",
        "Note: step 12",
        "user: step 12",
        "assistant: step 12",
        "[assistant] step 12",
        "2026-11-29 23:18:34,841 INFO __main__: saving step 12",
        "2026-11-29 23:18:34,841 INFO __main__: eval step 12",
        "2026-11-29 23:18:34,841 INFO __main__: resumed at step 12",
        '{"level": "info", "eval": {"step": 12, "loss": 1.5}}',
        "evaluator-1  | step 12",
        "rollout-1  | step 12",
        "vllm-1 | INFO 11-29 23:18:34 engine.py:42] step 12",
        '{"role": "assistant", "content": "step 12: add"}',
        "a + b: step 12",
        "for step in range(12): step 12",
        "Epoch 1: saved step 12",
        "    INFO = step 12",
        "if loss: step 12",
    ],
)
def test_a_step_of_a_sentence_or_of_another_part_is_not_read(line: str) -> None:
    assert "step" not in generic_groups(line)


def generic_groups(line: str) -> dict[str, Mapping[str, str]]:
    """Returns the matched groups of a run without framework, by pattern, as the logs are read."""
    search = compile_patterns(get_framework("generic").default_lines)
    found = search.search(line.encode(), 0, len(line.encode()))
    matches = (match for one in found for match in one.matches)
    return {one.pattern.name: one.groups for one in matches if not one.pattern.hints_at_step}


@pytest.mark.parametrize(
    ("line", "loss"),
    [
        ("loss nan", "nan"),
        ("step 10 loss: 0.5", "0.5"),
        ("epoch 3 | train_loss=-inf", "-inf"),
        ("{'loss': tensor(nan), 'lr': 0.1}", "nan"),
        ("Epoch 2/3:  45%|###  | 27/60 [00:02<00:03, 9.4it/s, loss=0.01]", "0.01"),
        ("Step:   180/  400 | Loss:      nan | avg_loss: nan", "nan"),
        ("step 5 loss:  nan", "nan"),
        ("loss  inf", "inf"),
        ("Loss\tnan", "nan"),
        ("step 5 avg_loss: nan", "nan"),
        ("step 5 mean loss nan", "nan"),
        ("step 5 total_loss=nan", "nan"),
        ("1000 lm_loss nan", "nan"),
        ("loss_step=nan, v_num=0", "nan"),
        ("Epoch 0:  45%|###  | 27/60 [00:02<00:03, 9.4it/s, train_loss_step=nan]", "nan"),
        ("iter 120: loss nan, time 12ms, mfu 3%", "nan"),
        ("step 250: train loss nan, val loss nan", "nan"),
        ("val loss 0.3, train loss nan", "nan"),
        ("val loss 0.3 train loss nan", "nan"),
        ("step 250: val loss 0.3 acc 0.9 | train/loss: nan", "nan"),
        ("val_loss=0.3 - train_loss=nan", "nan"),
        ('{"val_loss": 0.3, "loss": nan}', "nan"),
        ("val loss: 0.3, loss: nan", "nan"),
        ("Epoch 3: val loss 0.3, best train loss inf", None),
        ("val loss 0.3, test loss nan", None),
        ("val/loss 0.3, test/loss: nan, test - loss nan", None),
        ("val loss 0.3 (best: loss inf)", None),
        ("step 7 12ms loss 0.5", "0.5"),
        ("Epoch loss: nan", "nan"),
        ("epoch 3 loss nan", "nan"),
        ("2026-01-01 12:00:00 INFO loss: nan", "nan"),
        ("INFO loss: nan", "nan"),
        ("2026-01-01 12:00:00,123 INFO train loss nan", "nan"),
        ("WARNING loss=nan", "nan"),
        ("INFO     loss: nan", "nan"),
        ("diffusion loss: nan", "nan"),
        ("Iteration loss: nan", "nan"),
        ("iter loss: nan", "nan"),
        ("nll loss: nan", "nan"),
        ("nll_loss: nan", "nan"),
        ("MSE loss: nan", "nan"),
        ("cross entropy loss: nan", "nan"),
        ("cross-entropy loss: nan", "nan"),
        ("Reconstruction loss: nan", "nan"),
        ("step 12, epoch loss nan", "nan"),
        ("val loss: inf", None),
        ("INFO val loss: inf", None),
        ("val epoch loss: inf", None),
        ("Best epoch loss: inf", None),
        ("val cross entropy loss: nan", None),
        ("best mse loss: inf", None),
        ("Validation: epoch loss: inf", None),
        ("val/nll_loss: nan", None),
        ("error of loss: nan", None),
        ("New best! loss: 0.41 (was loss: inf)", None),
        ("loss of data", None),
        ("val_loss: 0.5", None),
        ("Best val loss: inf", None),
        ("EarlyStopping: best loss = inf", None),
        ("Best: loss inf", None),
        ("min loss inf", None),
        ("initial loss: inf", None),
        ("validation loss: nan", None),
        ("[val] loss: nan", None),
        ("Validation: loss=inf", None),
        ("gp loss nan (no pairs)", None),
        ("loss scale: inf", None),
        ("loss info: no data", None),
    ],
)
def test_a_loss_is_read_from_the_log_of_a_run_without_framework(
    line: str, loss: str | None
) -> None:
    (pattern,) = (one for one in get_framework("generic").lines if one.name == "loss")
    match = re2.search(pattern.regex, line)
    assert (match["loss"] or match["loss_"] if match else None) == loss


@pytest.mark.parametrize("line", ["policy_loss=nan", "step 5 | critic_loss:      nan"])
def test_a_part_of_the_loss_is_a_value_of_its_own(line: str) -> None:
    search = compile_patterns(get_framework("generic").lines)
    (found,) = search.search(line.encode(), 0, len(line))
    values = [value for match in found.matches for value in gauge_values(match, line)]
    ((name, number),) = values
    assert name in line
    assert math.isnan(number)
