"""Patterns of an Alertmanager that backtracking would search for ever."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from trainwarden_remediator.alertmanager.api import SilenceMatcher
from trainwarden_remediator.config.endpoints import parse_matcher
from trainwarden_remediator.config_check.routing import MatchResult, match_route

PATIENCE = 60.0
NESTED, TEXT = "(?:(?:a+)+)+!", "a" * 60
# In a process of its own, which can be ended: a search that never ends also holds the interpreter.
SEARCH = """
from trainwarden_remediator.alertmanager.api import is_silenced, parse_silences
import sys
print(is_silenced({"run": sys.argv[2]}, parse_silences(sys.argv[1].encode())))
"""
ROUTE = """
from trainwarden_remediator.config_check.routing import match_route
import sys
print(match_route({"match_re": {"severity": sys.argv[1]}}, {"severity": sys.argv[2]}).name)
"""


def output(program: str, *arguments: str) -> str:
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=True, text=True)
    return done.stdout.strip()


def test_a_silence_with_nested_quantifiers_is_matched_in_linear_time() -> None:
    matcher = {"name": "run", "value": NESTED, "isRegex": True, "isEqual": True}
    listed = [{"status": {"state": "active"}, "matchers": [matcher]}]
    assert output(SEARCH, json.dumps(listed), TEXT) == "False"


def test_so_is_a_route_of_alertmanagers_file() -> None:
    assert output(ROUTE, NESTED, TEXT) == "NO"


@pytest.mark.parametrize(
    ("pattern", "value", "matches"),
    [
        ("Training.*", "TrainingStalled", True),
        ("Training", "TrainingStalled", False),
        ("a|b", "b", True),
        ("a|b", "ab", False),
        ("", "", True),
        ("(?i)DEMO", "demo", True),
        (r"\pL+", "größe", True),
        ("gr.ße", "größe", True),
    ],
)
def test_a_pattern_means_what_it_means_to_alertmanager(
    pattern: str, value: str, *, matches: bool
) -> None:
    assert SilenceMatcher("run", pattern, is_regex=True).matches({"run": value}) is matches
    expected = MatchResult.YES if matches else MatchResult.NO
    assert match_route({"match_re": {"severity": pattern}}, {"severity": value}) is expected


@pytest.mark.parametrize("pattern", ["(", "a{2000}{2000}", "(?<=a)b", "\udc80"])
def test_a_silence_whose_pattern_cannot_be_read_covers_everything(pattern: str) -> None:
    assert SilenceMatcher("run", pattern, is_regex=True).matches({"run": "demo"})
    assert match_route({"match_re": {"severity": pattern}}, {"severity": "x"}) is MatchResult.MAYBE


@pytest.mark.parametrize("pattern", ["(", "(?<=a)b"])
def test_a_pattern_of_the_configuration_that_re2_cannot_read_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="not a regular expression"):
        parse_matcher(f'run=~"{pattern}"')
