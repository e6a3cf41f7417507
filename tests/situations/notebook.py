"""Runs each line of its input as a cell of one notebook, and writes what the cell shows."""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

client = NotebookClient(nbformat.v4.new_notebook(), timeout=None, kernel_name="python3")


def shown(source: str) -> str:
    """Executes a cell; returns its output."""
    client.nb.cells.append(nbformat.v4.new_code_cell(source))
    cell = client.execute_cell(client.nb.cells[-1], len(client.nb.cells) - 1)
    return "".join(output.get("text", "") for output in cell.outputs)


with client.setup_kernel():
    for line in sys.stdin:
        command, output, status = line.rstrip("\n").split("\t")
        Path(output).write_text(shown(f"!{command}"))
        Path(status).write_text(shown("print(_exit_code)"))
