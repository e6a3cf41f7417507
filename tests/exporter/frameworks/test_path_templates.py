from __future__ import annotations

from collections.abc import Mapping

import pytest

from trainwarden_exporter.frameworks.path_templates import PathTemplate, TemplatePart


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
def test_a_part_extracts_its_names_from_a_match(
    part: str, name: str, names: Mapping[str, str]
) -> None:
    match = TemplatePart(part).pattern({}).fullmatch(name)
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
def test_a_part_does_not_match_other_names(part: str, name: str) -> None:
    assert TemplatePart(part).pattern({}).fullmatch(name) is None


def test_a_known_name_matches_only_its_value() -> None:
    pattern = TemplatePart("{trial}_*").pattern({"trial": "a*b"})
    assert pattern.fullmatch("a*b_1")
    assert not pattern.fullmatch("axb_1")


def test_a_known_name_may_match_an_exclusion() -> None:
    assert TemplatePart("{run? not run_*}").literal({"run": "run_1"}) == "run_1"


@pytest.mark.parametrize(
    ("part", "literal"),
    [("logs", "logs"), ("run_{agent}", "run_a"), ("{other}", None), ("*.log", None)],
)
def test_a_part_is_literal_once_all_its_names_are_known(part: str, literal: str | None) -> None:
    assert TemplatePart(part).literal({"agent": "a"}) == literal


def test_a_template_is_split_at_its_slashes() -> None:
    place = PathTemplate("./checkpoints//{user}/{trial}/{has step_*/rank_*}")
    assert [part.text for part in place.parts] == ["checkpoints", "{user}", "{trial}"]
    assert [part.text for part in place.required_content] == ["step_*", "rank_*"]
    assert place.names == {"user", "trial"}
    assert not place.absolute


def test_a_template_may_be_the_folder_of_the_run_itself() -> None:
    assert PathTemplate(".").parts == ()
    assert PathTemplate("{has checkpoint-*}").parts == ()
    assert PathTemplate(".").path_for({}) == ""


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
def test_the_path_is_known_when_all_names_are_known(template: str, path: str | None) -> None:
    assert PathTemplate(template).path_for({"trial": "trial0"}) == path


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
        ("logs/[z-a]", r"\[z-a\]: bad character range"),
        ("logs/[]", r"\[\]: unterminated character set"),
        ("logs/[!].log", "unterminated character set"),
    ],
)
def test_an_invalid_template_is_rejected_with_the_reason(template: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        PathTemplate(template)
