from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import generate
import pytest
from pydantic import Field

from trainwarden_exporter.app import declared_metrics
from trainwarden_exporter.config_file.loader import Section
from trainwarden_exporter.config_file.types import Bytes, LocalPath, Seconds
from trainwarden_remediator.telemetry.metrics import METRICS


@pytest.mark.parametrize("name", generate.PAGES)
def test_the_page_is_as_the_code_declares(name: str) -> None:
    page = (generate.DOCS / name).read_text(encoding="utf-8")
    assert page == generate.PAGES[name](), "run `make docs`"


def test_every_metric_is_on_the_page() -> None:
    page = generate.metrics_page()
    assert all(f"`{metric.name}`" in page for metric in (*declared_metrics(), *METRICS))


class Inner(Section):
    """What is inside."""

    size: Bytes | None = None
    """How large."""


class Outer(Section):
    name: str
    wait: Seconds = Field(default=90)
    path: LocalPath = Path()
    inner: tuple[Inner, ...] = ()
    by_name: Mapping[str, Inner] = Field(default={})


def test_a_model_is_described_with_all_that_is_in_it() -> None:
    places = dict(generate.sorted_models(Outer))
    assert places == {"": Outer, "inner[]": Inner, "by_name.<name>": Inner}
    rows = generate._model_table("", Outer).splitlines()
    assert "| `name` | text | **required** |  |" in rows
    assert "| `wait` | duration | 1 min 30 s |  |" in rows
    assert "| `path` | path |  |  |" in rows
    assert "| `inner` | list of sections |  |  |" in rows
    assert "| `size` | size |  | How large. |" in generate._model_table("inner[]", Inner)
