"""A YAML file becomes a model, or every problem in it is reported with its line."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BeforeValidator, Field, model_validator

from trainwarden_exporter.config_file.loader import LocatedError, Section, load, parse
from trainwarden_exporter.config_file.types import Bytes, LocalPath, parse_duration
from trainwarden_exporter.config_file.yaml_nodes import MAX_NODES
from trainwarden_exporter.exceptions import ConfigError

FILE = Path("/etc/farm/farm.yml")
TEXT = "expected text (put a number, yes or no in quotes)"


def parse_age(value: object) -> object:
    if value == "soon":
        raise ValueError("expected an age")
    return parse_duration(value)


class Tree(Section):
    renamed_keys: ClassVar[Mapping[str, str]] = {"size": "height", "colour": ""}

    name: str
    height: int = Field(default=1, ge=0)
    age: Annotated[float, BeforeValidator(parse_age)] = 0
    fruit: tuple[str, ...] = ()
    labels: dict[str, str] = Field(default_factory=dict)
    kind: Literal["apple", "pear"] = "apple"
    watered: bool = False
    crown: float = 1.0
    volume: Bytes = 0
    map: LocalPath | None = None
    owner: str | tuple[str, ...] = ""


class Farm(Section):
    main: Tree | None = None
    trees: tuple[Tree, ...] = ()

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [tree.name for tree in self.trees]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise LocatedError(f"{name} is used twice", "trees", index, "name")
        return self


def farm(text: str, **environment: str) -> Farm:
    return parse(text, FILE, Farm, environment=environment)


def problems(text: str, **environment: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        farm(text, **environment)
    prefix = f"{FILE}:"
    return [str(problem).removeprefix(prefix) for problem in caught.value.problems]


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "{}", "---\n", "main:\ntrees:\n"])
def test_an_empty_file_and_empty_keys_give_the_defaults(text: str) -> None:
    assert farm(text) == Farm()


def test_values_are_read_as_written() -> None:
    tree = farm(
        """
main:
  name: old
  height: 12
  age: 1h30m
  fruit: [a, "2"]
  labels: {soil: clay}
  kind: pear
  watered: yes
  crown: 2.5
  volume: 2KiB
  map: maps/old.txt
"""
    ).main

    assert tree == Tree(
        name="old",
        height=12,
        age=5400,
        fruit=("a", "2"),
        labels={"soil": "clay"},
        kind="pear",
        watered=True,
        crown=2.5,
        volume=2048,
        map=Path("/etc/farm/maps/old.txt"),
    )


def test_every_problem_is_reported_with_its_line() -> None:
    assert problems(
        """\
main:
  name: a
  hieght: 3
trees:
  - height: -1
  - name: b
    age: soon
    fruit: apple
    kind: plum
"""
    ) == [
        "3: main.hieght: unknown key (did you mean height?)",
        "5: trees[0].name: required key is missing",
        "5: trees[0].height: should be greater than or equal to 0",
        "7: trees[1].age: expected an age",
        "8: trees[1].fruit: expected a list",
        "9: trees[1].kind: expected 'apple' or 'pear'",
    ]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("main: 3", "1: main: expected a mapping"),
        ("main: [a]", "1: main: expected a mapping"),
        ("trees: {name: a}", "1: trees: expected a list"),
        ("trees: a", "1: trees: expected a list"),
        ("trees: [a]", "1: trees[0]: expected a mapping"),
        ("trees:\n- \n", "2: trees[0]: expected a mapping"),
        ("main: {name: a, labels: [b]}", "1: main.labels: expected a mapping"),
        ("main: {name: a, height: tall}", "1: main.height: expected a whole number"),
        ("main: {name: a, height: 1.5}", "1: main.height: expected a whole number"),
        ("main: {name: a, height: [1]}", "1: main.height: expected a whole number"),
        ("main: {name: a, crown: wide}", "1: main.crown: expected a number"),
        ("main: {name: a, watered: often}", "1: main.watered: expected true or false"),
        ("main: {name: 7}", f"1: main.name: {TEXT}"),
        ("main: {name: a, fruit: [b, no]}", f"1: main.fruit[1]: {TEXT}"),
        ("main:\n  name: a\n  owner: {b: c}", f"3: main.owner: {TEXT}; or: expected a list"),
        ("[]", "1: expected a mapping"),
        ("just text", "1: expected a mapping"),
        ("- a\n- b", "1: expected a mapping"),
    ],
)
def test_a_wrong_kind_of_value_is_reported_in_plain_words(written: str, message: str) -> None:
    assert problems(written) == [message]


def test_a_misspelled_key_hides_no_other_problem() -> None:
    text = "trees:\n  - {name: a, hieght: 1}\n  - {name: a}\n"
    assert problems(text) == [
        "2: trees[0].hieght: unknown key (did you mean height?)",
        "3: trees[1].name: a is used twice",
    ]
    assert problems("treees:\n  - {name: a}\n  - {name: a}\n") == [
        "1: treees: unknown key (did you mean trees?)",
        "3: trees[1].name: a is used twice",
    ]


def test_a_validator_of_a_section_points_at_a_location_inside_it() -> None:
    text = "trees:\n  - name: a\n  - height: 2\n    name: a\n"
    assert problems(text) == ["4: trees[1].name: a is used twice"]


def test_a_key_given_twice_is_a_problem() -> None:
    assert problems("main:\n  name: a\n  name: b\n") == ["3: main.name: given twice"]


@pytest.mark.parametrize("key", ["1", "on", "null", "2025-11-21", "1.5"])
def test_a_key_is_the_text_that_is_written(key: str) -> None:
    tree = farm(f"main: {{name: a, labels: {{{key}: x}}}}").main
    assert tree is not None
    assert tree.labels == {key: "x"}
    assert problems(f"main:\n  name: a\n  {key}: 1") == [f"3: main.{key}: unknown key"]


def test_a_key_that_is_not_text_is_a_problem() -> None:
    assert problems("main:\n  ? [a]\n  : b\n") == ["2: main: a key must be plain text"]


@pytest.mark.parametrize("written", ["2025-11-21", "1:30", "12:30:45", "2025-99-99"])
def test_dates_and_clock_times_stay_text(written: str) -> None:
    tree = farm(f"main: {{name: {written}}}").main
    assert tree is not None
    assert tree.name == written


def test_environment_variables_are_expanded() -> None:
    tree = farm(
        "main: {name: 'x-${NAME}-$$-$NAME-$', height: '${HEIGHT}', age: '${AGE}'}",
        NAME="oak",
        HEIGHT="4",
        AGE="90",
    ).main

    assert tree is not None
    assert (tree.name, tree.height, tree.age) == ("x-oak-$-$NAME-$", 4, 90)


def test_an_unset_variable_is_a_problem_of_its_line() -> None:
    assert problems("main:\n  name: a\n  fruit: ['${NONE}', b, '${NIL}']") == [
        "3: main.fruit[0]: environment variable NONE is not set",
        "3: main.fruit[2]: environment variable NIL is not set",
    ]


def test_the_value_of_a_variable_is_not_expanded_again() -> None:
    tree = farm("main: {name: '${A}'}", A="${B}", B="secret").main
    assert tree is not None
    assert tree.name == "${B}"


def test_anchors_and_merges_work_and_a_merged_key_may_be_overridden() -> None:
    text = """\
main: &base
  name: base
  height: 3
trees:
  - <<: *base
    name: second
  - *base
  - <<: [{name: third}, *base]
"""
    trees = farm(text).trees
    assert [(tree.name, tree.height) for tree in trees] == [
        ("second", 3),
        ("base", 3),
        ("third", 3),
    ]


def test_a_problem_in_a_merged_value_has_the_line_of_the_value() -> None:
    text = "main: &base\n  name: a\n  height: -3\ntrees:\n  - <<: *base\n    name: b\n"
    assert problems(text) == [
        "3: main.height: should be greater than or equal to 0",
        "3: trees[0].height: should be greater than or equal to 0",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "main: &a [*a]",
        "main: &a {name: *a}",
        "main: &a {<<: *a}",
        "main: &a {<<: [*a]}",
        "trees: [&a {labels: &b {x: *a}}, *b]",
    ],
)
def test_an_alias_inside_its_own_value_is_a_problem(text: str) -> None:
    assert any("an alias refers to a value that contains it" in line for line in problems(text))


def test_only_mappings_can_be_merged() -> None:
    assert problems("main: {<<: 3, name: a}") == ["1: main.<<: only a mapping can be merged"]
    assert problems("main: {<<: [{}, [b]], name: a}") == [
        "1: main.<<: only a mapping can be merged"
    ]


def test_aliases_that_expand_to_billions_of_values_are_rejected_quickly() -> None:
    lines = ["l0: &l0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 12)]
    (problem,) = problems("\n".join(lines))
    assert problem.startswith("5: too large: ")


def test_merges_that_expand_to_billions_of_keys_are_rejected_quickly() -> None:
    lines = ["l0: &l0 {a: 1, b: 2}"]
    lines += [f"l{n}: &l{n} {{<<: [*l{n - 1}, *l{n - 1}]}}" for n in range(1, 39)]
    (problem,) = problems("\n".join(lines))
    assert problem.startswith("14: too large: ")


def test_a_long_file_is_rejected_where_it_is_too_long() -> None:
    (problem,) = problems("main:\n" + "- 1\n" * MAX_NODES)
    assert problem.startswith(f"{MAX_NODES - 1}: too large: ")


@pytest.mark.parametrize("depth", [60, 20_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ("{a: ", "}")])
def test_very_deep_nesting_is_rejected(opening: str, closing: str, depth: int) -> None:
    text = f"main: {opening * depth} {closing * depth}"
    (problem,) = problems(text)
    assert problem.endswith(("nested too deeply", "exceeded maximum nesting depth"))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("main: [", "1"),
        ("main:\n  name: a\n bad", "3"),
        ("main:\n\tname: a", "2"),
        ("main: *nowhere", "1"),
        ("a: 1\n---\nb: 2", "2"),
        ("main: 'open", "1"),
        ("main: @x", "1"),
    ],
)
def test_what_is_not_yaml_is_reported_with_its_line(text: str, line: str) -> None:
    (problem,) = problems(text)
    assert problem.startswith(f"{line}: not YAML: ")
    assert "\n" not in problem


def test_a_character_forbidden_in_yaml_is_reported_with_its_line() -> None:
    assert problems("main:\n  name: a\x00b") == ["2: not YAML: it contains the character U+0000"]


@pytest.mark.parametrize(
    "value", ["!!python/object/apply:os.system [id]", "!!python/name:os.system x", "!secret x"]
)
def test_a_tag_is_never_obeyed(value: str) -> None:
    assert problems(f"main:\n  name: {value}")


@pytest.mark.parametrize("value", ["!!int x", "!!binary '%'", "9" * 5000])
def test_a_value_that_cannot_be_constructed_is_a_problem_of_its_line(value: str) -> None:
    (problem,) = problems(f"main:\n  name: a\n  height: {value}")
    assert problem.startswith("3: main.height: ")


@given(st.text(alphabet="ab:-[]{}&*<!?|>'\"#$ \n,1.~", max_size=40))
def test_any_text_is_a_valid_file_or_a_list_of_problems(text: str) -> None:
    try:
        farm(text)
    except ConfigError as error:
        assert error.problems  # noqa: PT017 - that it is raised at all is not what is tested


def test_paths_in_a_file_are_relative_to_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "farm.yml"
    path.write_bytes("\ufeffmain: {name: grün, map: x}".encode())

    tree = load(path, Farm).main

    assert tree is not None
    assert (tree.name, tree.map) == ("grün", tmp_path / "x")


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real.yml").write_text("main: {name: a}")
    (tmp_path / "link.yml").symlink_to("real.yml")
    assert load(tmp_path / "link.yml", Farm).main


def unreadable(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "latin1").write_bytes(b"main:\n  name: gr\xfcn")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "huge").touch()
    os.truncate(tmp_path / "huge", 5 * 1024 * 1024)
    return {
        "absent": "No such file or directory",
        "folder": "Is a directory",
        "pipe": "not a regular file",
        "latin1": "not UTF-8 text",
        "loop": "symbolic links",
        "huge": "too large",
        "nul\0": "not a path",
    }


@pytest.mark.parametrize("name", ["absent", "folder", "pipe", "latin1", "loop", "huge", "nul\0"])
def test_a_file_that_cannot_be_read_is_one_problem(tmp_path: Path, name: str) -> None:
    expected = unreadable(tmp_path)[name]
    with pytest.raises(ConfigError, match=expected) as caught:
        load(tmp_path / name, Farm)
    assert len(caught.value.problems) == 1


def test_a_device_is_not_read() -> None:
    with pytest.raises(ConfigError, match="not a regular file"):
        load(Path("/dev/zero"), Farm)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("main:\n  name: a\n  size: 1", "3: main.size: renamed to height"),
        ("trees:\n- name: a\n- name: b\n  size: 1", "4: trees[1].size: renamed to height"),
        ("main:\n  name: a\n  colour: red", "3: main.colour: gone: nothing used it"),
        ("size: 1", "1: size: unknown key"),
    ],
)
def test_the_error_for_a_renamed_key_has_the_new_name(text: str, problem: str) -> None:
    assert problems(text) == [problem]
