from __future__ import annotations

import re

import pytest

from trainwarden_exporter.runtime.linear_search import SHORT_CHARACTERS, is_found, is_whole


@pytest.mark.parametrize("padding", [0, SHORT_CHARACTERS])
@pytest.mark.parametrize(
    ("regex", "text", "found", "whole"),
    [
        (r"train\.py", "python train.py", True, False),
        (r"train\.py$", "python train.py", True, False),
        (r"python +.*train\.py", "python train.py", True, True),
        (r"train\.pyx", "python train.py", False, False),
        (r"gr.\u00dfe", "python gr\u00f6\u00dfe", True, False),
        (r"python(?! test)", "python train.py", True, False),
    ],
)
def test_short_and_long_text_is_searched_alike(
    regex: str, text: str, padding: int, *, found: bool, whole: bool
) -> None:
    long = text.replace(" ", " " * (padding + 1))
    assert is_found(re.compile(regex), long) is found
    assert is_whole(re.compile(regex), long) is whole
