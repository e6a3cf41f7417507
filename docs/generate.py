"""Writes the pages of docs/ that are generated from code and rules; PAGES lists them."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any

from alerts_page import alerts_page
from frameworks_page import frameworks_page
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from trainwarden_exporter import app as exporter
from trainwarden_exporter.config import Config as ExporterConfig
from trainwarden_exporter.runtime.formatting import format_duration, format_size
from trainwarden_exporter.scrape import scraper
from trainwarden_exporter.scrape.collector import Metric
from trainwarden_exporter.webserver.web_config import WebConfig
from trainwarden_remediator.config.playbooks import PLAYBOOKS, TARGETLESS_ACTIONS, Playbook
from trainwarden_remediator.config.schema import Config as RemediatorConfig
from trainwarden_remediator.telemetry import metrics as remediator

DOCS = Path(__file__).parent

METRICS_HEAD = """\
# Metrics

Written by `make docs` from the declarations of the collectors. Sizes are in bytes, durations in
seconds, timestamps in Unix seconds. Every series of a run has the label `run`; a series of a worker
also has `worker` and `role`.
"""

CONFIGURATION_HEAD = """\
# Configuration

Written by `make docs` from the models that parse the files. An unknown key is an error;
`trainwarden-exporter check FILE` and `trainwarden-remediator check FILE` report every error with
its path and line. In every value `${NAME}` is replaced by the environment variable of that name,
and `$$` is a dollar sign. Durations are written `90`, `90s` or `1h30m`; sizes `8GiB`, `500MB`.
Relative paths are relative to the folder of the file that contains them.
"""


def metrics_page() -> str:
    """Returns docs/metrics.md."""
    groups: list[tuple[str, Iterable[Metric]]] = [
        ("The exporter itself", (*exporter.METRICS, *scraper.METRICS))
    ]
    groups += [(f"Collector `{c.name}`", c.metrics) for c in exporter.COLLECTORS]
    groups.append(("The remediator", remediator.METRICS))
    return METRICS_HEAD + "".join(_metric_table(title, table) for title, table in groups)


def _metric_table(title: str, metrics: Iterable[Metric]) -> str:
    rows = "".join(
        f"| `{m.name}` | {m.type} | {', '.join(f'`{label}`' for label in m.labels)} | {m.help} |\n"
        for m in metrics
    )
    return f"\n## {title}\n\n| metric | type | labels | description |\n|---|---|---|---|\n{rows}"


def configuration_page() -> str:
    """Returns docs/configuration.md."""
    text = CONFIGURATION_HEAD
    for title, model in (
        ("exporter.yml", ExporterConfig),
        ("remediator.yml", RemediatorConfig),
        ("The web config file", WebConfig),
    ):
        text += f"\n## {title}\n\n{_first_paragraph(model)}\n"
        text += "".join(_model_table(where, m) for where, m in sorted_models(model))
        if model is RemediatorConfig:
            text += _playbook_table()
    return text


def sorted_models(model: type[BaseModel], where: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """Yields `model` and every model nested in it, each with its key path."""
    yield where, model
    for name, field in model.model_fields.items():
        for inner, suffix in _models_in(field.annotation):
            path = f"{where}.{_key(name, field)}" if where else _key(name, field)
            yield from sorted_models(inner, path + suffix)


def _models_in(annotation: Any) -> Iterator[tuple[type[BaseModel], str]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, ""
        return
    origin = typing.get_origin(annotation)
    suffix = "[]" if origin in (tuple, list) else ".<name>" if origin in (Mapping, dict) else ""
    for part in typing.get_args(annotation):
        for inner, more in _models_in(part):
            yield inner, suffix + more


def _key(name: str, field: FieldInfo) -> str:
    return field.alias or name


def _model_table(where: str, model: type[BaseModel]) -> str:
    about = _first_paragraph(model)
    title = f"\n### `{where}`\n" + f"\n{about}\n" * bool(about) if where else ""
    meanings = _meanings(model)
    rows = "".join(
        f"| `{_key(name, field)}` | {_kind(field)} | {_default(field)} |"
        f" {' '.join(meanings.get(name, '').split())} |\n"
        for name, field in model.model_fields.items()
    )
    return f"{title}\n| key | value | default | meaning |\n|---|---|---|---|\n{rows}"


def _meanings(model: type[BaseModel]) -> dict[str, str]:
    """Returns the text below each field, its own and inherited, by the field's name.

    pydantic would read it from the source too, but at each start of the programs.
    """
    found = {}
    for one in reversed(model.__mro__[: model.__mro__.index(BaseModel)]):
        match ast.parse(textwrap.dedent(inspect.getsource(one))).body:
            case [ast.ClassDef(body=body)]:
                for pair in pairwise(body):
                    match pair:
                        case (
                            ast.AnnAssign(target=ast.Name(id=name)),
                            ast.Expr(value=ast.Constant(value=str(meaning))),
                        ):
                            found[name] = meaning
    return found


def _first_paragraph(model: type[BaseModel]) -> str:
    return " ".join((model.__doc__ or "").split("\n\n")[0].split())


def _kind(field: FieldInfo) -> str:
    return _unit(field.metadata) or _name_of(field.annotation)


def _unit(metadata: object) -> str:
    """Returns `duration` or `size` if a parser of config_file.types reads the number, else ""."""
    text = str(metadata)
    sizes = ("parse_size", "parse_space")
    is_size = any(one in text for one in sizes)
    return "duration" if "parse_duration" in text else "size" if is_size else ""


def _name_of(annotation: Any) -> str:
    args = [arg for arg in typing.get_args(annotation) if arg is not type(None)]
    origin = typing.get_origin(annotation)
    if origin is typing.Literal:
        return " or ".join(f"`{arg}`" for arg in args)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(_name_of(arg) for arg in args))
    if origin is typing.Annotated:
        return _unit(annotation.__metadata__) or _name_of(args[0])
    if origin is re.Pattern:
        return "regular expression"
    if origin in (tuple, list):
        return f"list of {_plural(_name_of(args[0]))}"
    if origin in (Mapping, dict):
        return f"mapping to {_plural(_name_of(args[-1]))}"
    if isinstance(annotation, type):
        if issubclass(annotation, Enum):
            return " or ".join(f"`{member.value}`" for member in annotation)
        names = {"str": "text", "int": "number", "float": "number", "bool": "`true` or `false`"}
        names |= {"Path": "path", "FileContent": "path", "SecretStr": "text"}
        if issubclass(annotation, BaseModel):
            return "section"
        return names.get(annotation.__name__, annotation.__name__)
    return str(annotation)


def _plural(name: str) -> str:
    return name if name.endswith(("s", "`", "text")) else f"{name}s"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "**required**"
    default = field.default
    if default in (None, PydanticUndefined, "", (), {}, Path()) or isinstance(default, BaseModel):
        return ""
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if _kind(field) == "duration":
        return format_duration(default)
    return format_size(default) if _kind(field) == "size" else f"`{default}`"


def _playbook_table() -> str:
    rows = "".join(
        f"| `{name}` | `{playbook.condition.value}` | {_ladder(playbook)} |\n"
        for name, playbook in PLAYBOOKS.items()
    )
    return (
        "\n### Built-in playbooks\n\n"
        "The shipped rules use these; a playbook of the same name in the file replaces one.\n\n"
        f"| playbook | condition | ladder |\n|---|---|---|\n{rows}"
    )


def _ladder(playbook: Playbook) -> str:
    """Describes the rungs of `playbook`, each with the outcome that leads to it."""
    steps: list[str] = []
    for rung in playbook.ladder:
        touching = rung.action not in TARGETLESS_ACTIONS
        words = f"{rung.action} `{rung.target}`" if touching else rung.action
        steps.append(f"on `{rung.when}`, {words}" if steps else words)
    return "; then, ".join(steps)


PAGES = {
    "alerts.md": alerts_page,
    "metrics.md": metrics_page,
    "configuration.md": configuration_page,
    "frameworks.md": frameworks_page,
}


def main() -> int:
    """Writes the pages; with `--check`, only reports which of them are stale."""
    stale = 0
    for name, page in PAGES.items():
        path, text = DOCS / name, page()
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if "--check" in sys.argv[1:]:
            print(f"{path}: stale; run `make docs`", file=sys.stderr)
            stale += 1
        else:
            path.write_text(text, encoding="utf-8")
    return min(stale, 1)


if __name__ == "__main__":
    sys.exit(main())
