"""Print the completion of this command for a shell.

Completes subcommands, options and their values, and the names of runs.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module

from trainwarden.commands import command_help, forwarded

EXAMPLES = """\
examples:
  trainwarden completion bash > ~/.local/share/bash-completion/completions/trainwarden
  trainwarden completion zsh >> ~/.zshrc
  trainwarden completion fish > ~/.config/fish/completions/trainwarden.fish

exit status: 0"""

_RUN = "RUN"
"""Stands for the names of the announced runs."""
_RUNS = '"${TRAINWARDEN_FOLDER:-${XDG_STATE_HOME:-$HOME/.local/state}/trainwarden}"/runs.d'
_BASH = """\
_trainwarden() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} words file
    case $COMP_CWORD,${{COMP_WORDS[1]}},${{COMP_WORDS[COMP_CWORD-1]}} in
{cases}
    esac
    if [[ $words == *RUN* && $current != -* ]]; then
        words=
        for file in {runs}/*@*.json; do
            file=${{file##*/}}
            [[ $file == \\** ]] || words+=" ${{file%@*}}"
        done
    fi
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _trainwarden trainwarden
"""
_ZSH = "autoload -Uz compinit bashcompinit && compinit && bashcompinit\n"
_FISH_RUNS = (  # fish has no default values of variables
    f"(sh -c 'ls {_RUNS}' 2>/dev/null | string match -r '^[^.@]+(?=@.*json)' | sort -u)"
)


@dataclass(frozen=True)
class Option:
    """An option or an argument of a subcommand; an argument has no flags."""

    flags: tuple[str, ...]
    help: str
    takes_value: bool
    choices: tuple[str, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))


def run(options: argparse.Namespace) -> int:
    commands = {name: (text, tuple(_options(name))) for name, text in command_help()}
    if options.shell == "fish":
        print("\n".join(_fish_lines(commands)))
    else:
        prefix = _ZSH if options.shell == "zsh" else ""
        print(prefix + _bash_script(commands), end="")
    return 0


Commands = dict[str, tuple[str, tuple[Option, ...]]]


def _options(name: str) -> Iterator[Option]:
    for action in _parser(name)._actions:  # noqa: SLF001 - argparse lists them nowhere else
        if action.help != argparse.SUPPRESS:
            choices = (_RUN,) if action.metavar == _RUN else map(str, action.choices or ())
            flags, takes_value = tuple(action.option_strings), action.nargs != 0
            text = (action.help or "") % {**vars(action), "prog": "trainwarden"}
            yield Option(flags, text, takes_value, tuple(choices))


def _parser(name: str) -> argparse.ArgumentParser:
    if name not in forwarded.FORWARDED:
        parser = argparse.ArgumentParser()
        import_module(f"trainwarden.commands.{name}").add_arguments(parser)
        return parser
    package, _ = forwarded.FORWARDED[name]
    module = import_module(f"{package}.__main__")
    (commands,) = (
        action
        for action in module.build_parser()._actions  # noqa: SLF001 - as above
        if isinstance(action, argparse._SubParsersAction)  # noqa: SLF001 - as above
    )
    found: argparse.ArgumentParser = commands.choices[name]
    return found


def _bash_script(commands: Commands) -> str:
    cases = [f"1,*) words={shlex.quote(' '.join(commands))} ;;"]
    for name, (_, options) in commands.items():
        for one in options:
            if one.takes_value and one.flags:
                places = "|".join(f"*,{name},{flag}" for flag in one.flags)
                cases.append(f"{places}) words={shlex.quote(' '.join(one.choices))} ;;")
        words = [word for one in options for word in one.flags or one.choices]
        cases.append(f"*,{name},*) words={shlex.quote(' '.join(words))} ;;")
    return _BASH.format(cases="\n".join(f"        {case}" for case in cases), runs=_RUNS)


def _fish_lines(commands: Commands) -> Iterator[str]:
    for name, (text, options) in commands.items():
        complete = "complete -c trainwarden -n"
        yield f"{complete} __fish_use_subcommand -f -a {name} -d {shlex.quote(text)}"
        for one in options:
            parts = [complete, f"'__fish_seen_subcommand_from {name}'"]
            if one.choices == (_RUN,):
                parts += ["-f -a", shlex.quote(_FISH_RUNS)]
            elif one.choices:
                parts += ["-f -a", shlex.quote(" ".join(one.choices))]
            for flag in one.flags:
                parts.append(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}")
            if one.flags and one.takes_value:
                parts.append("-r")
            yield " ".join([*parts, *(["-d", shlex.quote(one.help)] if one.help else [])])
