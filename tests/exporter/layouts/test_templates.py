from __future__ import annotations

from collections.abc import Mapping

import pytest

from trainwarden_exporter.layouts.templates import Part, Place


@pytest.mark.parametrize(
    ("part", "name", "names"),
    [
        ("checkpoints", "checkpoints", {}),
        ("{trial}", "trial0", {"trial": "trial0"}),
        ("run_{agent}", "run_default", {"agent": "default"}),
        ("{user}-{host}.log", "root-a.b.log", {"user": "root", "host": "a.b"}),
        ("{a}-{a}", "x-x", {"a": "x"}),
        ("step_*", "step_12", {}),
        ("version_[0-9]", "version_3", {}),
        ("version_[!0-9]", "version_a", {}),
        ("rank?.log", "rank1.log", {}),
        ("{run?}", "wordle", {"run": "wordle"}),
        ("{run? not checkpoint-*}", "checkpoints", {"run": "checkpoints"}),
        (".{name}", ".hydra", {"name": "hydra"}),
        ("a+(b).c", "a+(b).c", {}),
    ],
)
def test_a_part_reads_its_names_from_what_it_matches(
    part: str, name: str, names: Mapping[str, str]
) -> None:
    match = Part(part).pattern({}).fullmatch(name)
    assert match is not None
    assert match.groupdict() == names


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("step_*", "my_step_12"),
        ("version_[0-9]", "version_a"),
        ("version_[!0-9]", "version_3"),
        ("rank?.log", "rank12.log"),
        ("{a}-{a}", "x-y"),
        ("*", ".cache"),
        ("{trial}", ".cache"),
        ("{run? not checkpoint-*}", "checkpoint-10"),
        ("a.c", "abc"),
    ],
)
def test_what_a_part_does_not_mean_it_does_not_match(part: str, name: str) -> None:
    assert Part(part).pattern({}).fullmatch(name) is None


def test_a_name_that_is_known_matches_that_text_alone() -> None:
    pattern = Part("{trial}_*").pattern({"trial": "a*b"})
    assert pattern.fullmatch("a*b_1")
    assert not pattern.fullmatch("axb_1")


def test_a_name_that_is_known_may_be_one_that_would_be_left_out() -> None:
    assert Part("{run? not run_*}").fixed({"run": "run_1"}) == "run_1"


@pytest.mark.parametrize(
    ("part", "fixed"),
    [("logs", "logs"), ("run_{agent}", "run_a"), ("{other}", None), ("*.log", None)],
)
def test_a_part_is_fixed_once_all_in_it_is_known(part: str, fixed: str | None) -> None:
    assert Part(part).fixed({"agent": "a"}) == fixed


def test_a_template_is_taken_apart_at_its_slashes() -> None:
    place = Place("./checkpoints//{user}/{trial}/{has step_*/rank_*}")
    assert [part.text for part in place.parts] == ["checkpoints", "{user}", "{trial}"]
    assert [part.text for part in place.witness] == ["step_*", "rank_*"]
    assert place.names == {"user", "trial"}
    assert not place.absolute


def test_a_template_may_be_the_folder_of_the_run_itself() -> None:
    assert Place(".").parts == ()
    assert Place("{has checkpoint-*}").parts == ()
    assert Place(".").path({}) == ""


@pytest.mark.parametrize(
    ("template", "path"),
    [
        ("checkpoints/{trial}/default", "checkpoints/trial0/default"),
        ("{run?}/rollouts/{has step_*}", "rollouts"),
        ("/tmp/{trial}.log", "/tmp/trial0.log"),
        ("checkpoints/{user}", None),
        ("logs/*.log", None),
    ],
)
def test_where_it_will_lie_is_known_when_all_names_are(template: str, path: str | None) -> None:
    assert Place(template).path({"trial": "trial0"}) == path


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("", "empty"),
        ("logs/**/*.log", r"\*\* would search a whole tree"),
        ("logs/{trial", "brace"),
        ("logs/trial}", "brace"),
        ("logs/{}", "not a name"),
        ("logs/{Trial}", "not a name"),
        ("logs/{a-b}", "not a name"),
        ("logs/x{run?}", "not a name"),
        ("logs/{has x}/y", "not a name"),
    ],
)
def test_what_is_no_template_is_refused_with_the_reason(template: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Place(template)
