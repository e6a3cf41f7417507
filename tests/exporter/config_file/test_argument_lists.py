"""Command lines in a file: what only a shell can do is a mistake."""

from __future__ import annotations

import pytest

from trainwarden_exporter.config_file.argument_lists import check_arguments, split_command


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("cd x && python train.py > file", "cd"),
        ("python prepare.py && python train.py", "&&"),
        ("python train.py > log.txt", ">"),
        ("python train.py >log.txt", ">log.txt"),
        ("python train.py 2>&1", "2>&1"),
        ("python train.py &>> log.txt", "&>>"),
        ("python train.py 2>/dev/null", "2>/dev/null"),
        ("python train.py | tee log.txt", "|"),
        ("python train.py < config.json", "<"),
        ("nohup python train.py &", "&"),
        ("python a.py; python b.py", "a.py;"),
        ("source venv/bin/activate\npython train.py", "source"),
        ("A=1 exec python train.py", "exec"),
        ("sh -c echo a && echo b", "&&"),
    ],
)
def test_a_text_for_a_shell_is_refused_with_the_form_to_write(text: str, wrong: str) -> None:
    with pytest.raises(ValueError, match="write \\[sh, -c, 'COMMAND'\\]") as caught:
        split_command(text)
    assert str(caught.value).startswith(f"`{wrong}` needs a shell")


@pytest.mark.parametrize(
    "text", ["python train.py --data $HOME/data", 'python train.py "$HOME/x"', "python `which t`"]
)
def test_a_variable_that_only_a_shell_would_replace_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write \\$\\{NAME\\} for a variable"):
        split_command(text)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("sh -c 'cd x && python train.py > file'", ["sh", "-c", "cd x && python train.py > file"]),
        ('bash -c "cd $HOME && python x.py"', ["bash", "-c", "cd $HOME && python x.py"]),
        ("A=1 python train.py", ["env", "A=1", "python", "train.py"]),
        ("python x.py '&&' \">\" \\;", ["python", "x.py", "&&", ">", ";"]),
        ("python x.py --url http://h/?a=1&b=2", ["python", "x.py", "--url", "http://h/?a=1&b=2"]),
        ("python x.py --pad <pad> --end '$x'", ["python", "x.py", "--pad", "<pad>", "--end", "$x"]),
        ("python x.py --match 'a$' ^b$ *.py", ["python", "x.py", "--match", "a$", "^b$", "*.py"]),
        ("ssh gpu cd run && python $X", ["ssh", "gpu", "cd", "run", "&&", "python", "$X"]),
        ("sh -c 'a \\\n b'", ["sh", "-c", "a \\\n b"]),
        ("python train.py \\\n  --lr 1\n", ["python", "train.py", "--lr", "1"]),
    ],
)
def test_a_text_without_more_of_a_shell_is_split(text: str, arguments: list[str]) -> None:
    assert split_command(text) == arguments


@pytest.mark.parametrize(
    "arguments",
    [
        ["cd", "x", "&&", "python", "train.py"],
        ["python", "train.py", ">", "log.txt"],
        ["python", "train.py", "2>&1"],
        ["cd x && python train.py > file"],
        ["python train.py > file"],
    ],
)
def test_a_list_for_a_shell_is_refused(arguments: list[str]) -> None:
    with pytest.raises(ValueError, match="needs a shell, and none reads this"):
        check_arguments(arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ["sh", "-c", "cd x && python train.py > file"],
        ["find", ".", "-exec", "rm", "{}", ";"],
        ["ssh", "gpu", "cd", "run", "&&", "python", "train.py"],
        ["/srv/my run/train.sh", "$HOME", "`id`", "; touch x"],
        [],
    ],
)
def test_a_list_that_a_program_takes_is_accepted(arguments: list[str]) -> None:
    assert check_arguments(arguments) == arguments
