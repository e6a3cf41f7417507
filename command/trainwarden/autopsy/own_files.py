"""Leaves out the files of other runs of `trainwarden run` that belong to the same folder.

A log of one run beside the checkpoints of another would advise a resume that loses work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from trainwarden.autopsy.announced import AnnouncedWorker
from trainwarden.autopsy.files import FolderFiles
from trainwarden_exporter.discovery.host_scan import RunFolder


def own_files(
    files: FolderFiles, saved: Path | None, others: Sequence[AnnouncedWorker]
) -> FolderFiles:
    """Leaves out the logs of `others`, and where there are any, all that are not in `saved`.

    `saved` is the folder of the run's checkpoints, if it is known.
    """
    if not others:
        return files
    logs = tuple(log for log in files.logs if _is_own(log.path, saved, others))
    return replace(files, logs=logs)


def own_folder(
    found: RunFolder, saved: Path | None, others: Sequence[AnnouncedWorker]
) -> RunFolder:
    """Leaves out the checkpoints and logs of `others`, and all checkpoints not in `saved`."""
    if not _is_own(found.path, None, others):
        return RunFolder(found.path.parent)
    return replace(
        found,
        step_folders=tuple(one for one in found.step_folders if _is_own(one.path, saved, others)),
        logs=tuple(one for one in found.logs if _is_own(one.path, None, others)),
    )


def _is_own(path: Path, saved: Path | None, others: Sequence[AnnouncedWorker]) -> bool:
    path = path.resolve()
    if saved is not None and not path.is_relative_to(saved):
        return False
    return not any(
        path == one.log.resolve()
        or (one.checkpoints is not None and path.is_relative_to(one.checkpoints))
        for one in others
    )
