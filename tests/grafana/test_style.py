"""Colours and words mean what the rules and the programs mean."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, get_args

import generate
import pytest

from boards import gpu, serving, style, verdict, why, workers_life
from boards.limits import LIMITS, Limit
from boards.style import Word, codes, falling, mappings, rising
from previewing.shown import COLOURS
from trainwarden_exporter.config import Config
from trainwarden_exporter.containers.docker_api import STATES
from trainwarden_exporter.frameworks.base import Phase
from trainwarden_exporter.gpu.driver import DriverState
from trainwarden_exporter.inference.health_model import HealthReason


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: f"{limit.alert}-{limit.severity}")
def test_a_limit_is_that_of_the_alert(limit: Limit, alerts: list[dict[str, Any]]) -> None:
    rules = [
        " ".join(rule["expr"].split())
        for rule in alerts
        if rule["alert"] == limit.alert and rule["labels"]["severity"] == limit.severity
    ]
    assert any(limit.written in f"{rule} " for rule in rules)


@pytest.mark.parametrize(
    ("written", "value"),
    [("> 0.95", 0.95), ("> 2 * 60", 120), ("< 1 ", 1), ("> last_over_time(a", 1), (">= 6", 6)],
)
def test_the_number_of_a_limit_is_read_from_the_rule(written: str, value: float) -> None:
    assert Limit("", "", written).value == pytest.approx(value)


def colour(scale: style.Scale, value: float) -> str:
    found = scale.base
    for least, name in scale.steps:
        found = name if value >= least else found
    return found


def test_more_is_worse_or_less_is() -> None:
    assert [colour(rising(0.9, 1), v) for v in (0.5, 0.95, 1)] == ["green", "yellow", "red"]
    assert [colour(rising(None, 1), v) for v in (0.5, 1)] == ["green", "red"]
    assert [colour(rising(1, None), v) for v in (0, 2)] == ["green", "yellow"]
    assert [colour(falling(3, 1), v) for v in (0.5, 1, 3)] == ["red", "yellow", "green"]
    assert [colour(falling(None, 0), v) for v in (-1, 0)] == ["red", "green"]
    assert [colour(falling(10, None), v) for v in (9, 10)] == ["yellow", "green"]


@pytest.mark.parametrize(
    ("names", "all_there_are"),
    [
        (verdict.PHASES, tuple(Phase)),
        (codes(workers_life.STATE_WORDS), (*STATES, "absent")),
        (codes(gpu.DRIVER_WORDS), get_args(DriverState)),
        (serving.REASONS, tuple(HealthReason)),
    ],
)
def test_every_state_has_a_word(names: Sequence[str], all_there_are: Sequence[str]) -> None:
    assert set(names) == set(all_there_are)
    assert len(set(names)) == len(names)


def test_the_reasons_stand_in_the_order_of_their_words() -> None:
    texts = [word.text.removeprefix("error ") for word in serving.REASON_WORDS]
    assert [name.replace("_", " ") for name in serving.REASONS] == texts


def test_a_word_keeps_its_number_and_its_colour() -> None:
    (mapping,) = mappings([Word(0, "no", "red"), Word(1, "yes", "green")])
    options = mapping.to_json()["options"]
    assert isinstance(options, dict)
    assert {key: (o.text, o.color) for key, o in options.items()} == {
        "0": ("no", "red"),
        "1": ("yes", "green"),
    }


def test_every_colour_is_one_of_grafanas() -> None:
    used = [
        *verdict.PHASE_WORDS,
        *verdict.VERDICTS,
        *serving.REASON_WORDS,
        *workers_life.STATE_WORDS,
    ]
    for word in used:
        assert word.colour in COLOURS or re.fullmatch("#[0-9a-f]{6}", word.colour)


def test_keys_in_the_texts_of_empty_panels_are_in_the_configuration() -> None:
    keys = set()
    for where, model in generate.sorted_models(Config):
        for name, field in model.model_fields.items():
            keys.add(f"{where}.{field.alias or name}".removeprefix("."))
    named = [
        key
        for name, text in vars(why).items()
        if name.isupper() and isinstance(text, str)
        for key in re.findall(r"\b(?:runs|disks)\[\]\.[\w.\[\]]+", text)
    ]
    assert named
    assert set(named) <= keys
