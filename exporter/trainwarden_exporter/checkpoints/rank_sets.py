"""Finds missing files of a set: of ranks, of shards, of a trainer's state. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping

from trainwarden_exporter.checkpoints.damages import Damage, DamageKind

_SHARD = re.compile(r"-(\d{5})-of-(\d{5})(?=[-.])")
_WORLD = re.compile(r"world_size_(\d+)")
_RANK = re.compile(r"(?P<kind>(?:zero_pp_|mp_|tp_|pp_|dp_)?rank|rng_state)_?(?P<number>\d+)")
_MEGATRON_RANK = re.compile(r"(?<=mp_rank_)(\d{2,})_(?=\d{3}(?:\D|$))")
"""Between the tensor and the pipeline rank in the name of a folder.
Source: megatron/training/checkpointing.py, get_checkpoint_name."""
_MEMBER = re.compile(r"\.(?:pt|pth|bin|safetensors|ckpt)$")

_STORED = re.compile(r"(?:^|/)__\d+_\d+\.distcp$")
_FIRST_OPTIMIZER_STATE = re.compile(
    r"(?:[a-z\d]+_)?zero_pp_rank_0_(?P<part>mp_rank_\d+)_optim_states\.pt$"
)
_TEMPORARY = re.compile(r"\.(?:tmp|part|partial|incomplete)(?:[._-]?\w{1,12})?$")

_TRAINER_STATE = "trainer_state.json"
_WEIGHTS = re.compile(
    r"(?:^|/)(?:(?:adapter_)?model[^/]*\.safetensors|(?:adapter|pytorch)_model[^/]*\.bin"
    r"|pytorch_model_fsdp[^/]*|global_step\d+/.*|[^/]*\.distcp)(?:$|/)"
)
_OPTIMIZER = re.compile(
    r"^(?:optimizer[^/]*\.(?:pt|bin)|optimizer_\d+/.*|global_step\d+/.*|optimizer/.*)$"
)
_TRAINING_ARGUMENTS = "training_args.bin"
_OF_A_MODEL = frozenset((_TRAINING_ARGUMENTS, "config.json", "adapter_config.json"))
"""Any of them beside the trainer's state shows that transformers wrote the checkpoint."""
_WITHOUT_WEIGHTS = re.compile(
    r"^(?:training_args\.bin|(?:optimizer|scheduler|scaler|rng_state)[^/]*\.(?:pt|pth|bin)"
    r"|optimizer(?:_\d+)?/.*|latest|.*\.(?:csv|jinja|jsonl?|log|md|model|py|tiktoken|txt|ya?ml))$"
)
"""A file that surely holds no weights; any other may, whatever its name."""


def check_sets(
    names: Collection[str], world_sizes: Mapping[str, Mapping[str, int]]
) -> Iterator[Damage]:
    """Yields what is missing from the files `names` of a checkpoint.

    `world_sizes` has, by folder and kind of rank, the number of ranks that a file states.
    """
    files = [name for name in names if _MEMBER.search(name)]
    yield from _missing_shards(files)
    yield from _missing_ranks(files, world_sizes)
    yield from _missing_trainer_files(names)
    yield from _missing_metadata(names)
    yield from _missing_model_states(names)
    for name in names:
        if _TEMPORARY.search(name):
            yield Damage(DamageKind.INTERRUPTED, name, "is the temporary file of a save")


def _missing_shards(files: Collection[str]) -> Iterator[Damage]:
    found: dict[tuple[str, int], set[int]] = {}
    for name in files:
        if match := _SHARD.search(name):
            family = _SHARD.sub("-*-of-*", name)
            found.setdefault((family, int(match[2])), set()).add(int(match[1]))
    totals: dict[str, int] = {}
    for family, total in found:
        totals[family] = max(totals.get(family, 0), total)
    for (family, total), numbers in found.items():
        first = min(*numbers, 1)  # counted from one, in some programs from zero
        expected = range(first, first + total)
        if totals[family] == total and (lost := set(expected) - numbers):
            yield Damage(DamageKind.MISSING, family, f"{_listed(lost)} of {total} is missing")


def _missing_ranks(
    files: Collection[str], world_sizes: Mapping[str, Mapping[str, int]]
) -> Iterator[Damage]:
    families: dict[tuple[str, ...], set[tuple[int, ...]]] = {}
    for name in (_MEGATRON_RANK.sub(r"\1_pp_rank_", file) for file in files):
        if matches := list(_RANK.finditer(name)):
            family = _RANK.sub(lambda match: f"{match['kind']}_*", name)
            key = (family, *(match["kind"] for match in matches))
            families.setdefault(key, set()).add(tuple(int(match["number"]) for match in matches))
    for (family, *kinds), numbers in families.items():
        folder = family.rpartition("/")[0]
        stated = dict(world_sizes.get(folder, {}))
        if world := _WORLD.search(family):
            stated["rank"] = int(world[1])
        ranges = []
        for position, kind in enumerate(kinds):
            present = {one[position] for one in numbers}
            ranges.append(_expected_ranks(present, stated.get(kind)))
        wanted = math.prod(map(len, ranges))
        lost = wanted - len(numbers)
        if lost > 0:
            yield Damage(DamageKind.MISSING, family, f"{lost} of {wanted} ranks are missing")


def _expected_ranks(present: set[int], world_size: int | None) -> range:
    """Returns the ranks that should be there.

    A node with a disk of its own has only its own ranks: a block of ranks that begins at a multiple
    of its length, and whose length divides the number of ranks.
    """
    low, high = min(present), max(present)
    length = high - low + 1
    if world_size is None or high >= world_size:
        return range(low, high + 1)
    is_block = 1 < length == len(present) and not world_size % length and not low % length
    return range(low, high + 1) if is_block else range(world_size)


def lacks_weights(names: Collection[str]) -> bool:
    """Whether there is a trainer's state, and beside it no file that may hold weights.

    A training loop of somebody's own may write such a state, too, and keep its weights elsewhere.
    """
    return _TRAINER_STATE in names and all(map(_WITHOUT_WEIGHTS.search, names))


def _missing_trainer_files(names: Collection[str]) -> Iterator[Damage]:
    """The state of transformers' Trainer is saved together, or only the model.

    Only where nothing but transformers can have written the checkpoint: a training loop of
    somebody's own names its files as it likes, and may have no scheduler.
    Source: transformers/trainer.py, _save_checkpoint.
    """
    known = all(_WITHOUT_WEIGHTS.search(name) or _WEIGHTS.search(name) for name in names)
    if _TRAINER_STATE not in names or not known or _OF_A_MODEL.isdisjoint(names):
        return
    if lacks_weights(names):
        yield Damage(DamageKind.MISSING, "model.safetensors", "no file with weights")
    if _TRAINING_ARGUMENTS not in names:
        return
    has_optimizer = any(_OPTIMIZER.search(name) for name in names)
    has_random_state = any(name.startswith("rng_state") for name in names)
    if "scheduler.pt" in names and not has_optimizer:
        yield Damage(DamageKind.MISSING, "optimizer.pt", "is missing beside scheduler.pt")
    if "optimizer.pt" in names and "scheduler.pt" not in names:
        yield Damage(DamageKind.MISSING, "scheduler.pt", "is missing beside optimizer.pt")
    if "scheduler.pt" in names and has_optimizer and not has_random_state:
        yield Damage(DamageKind.MISSING, "rng_state.pth", "is missing beside scheduler.pt")


def _missing_metadata(names: Collection[str]) -> Iterator[Damage]:
    """torch.distributed.checkpoint writes it last, beside its files.

    Source: torch/distributed/checkpoint/filesystem.py, finish.
    """
    folders = {name.rpartition("/")[0] for name in names if _STORED.search(name)}
    for folder in sorted(folders):
        if (path := f"{folder}/.metadata".lstrip("/")) not in names:
            yield Damage(DamageKind.MISSING, path, "is missing beside its .distcp files")


def _missing_model_states(names: Collection[str]) -> Iterator[Damage]:
    """DeepSpeed's first rank of each model part writes the weights beside its optimizer state.

    Source: deepspeed/runtime/engine.py, save_checkpoint.
    """
    for name in names:
        if match := _FIRST_OPTIMIZER_STATE.search(name):
            folder, part = name[: match.start()], match["part"]
            paths = [
                f"{folder}{prefix}{part}_model_states.pt" for prefix in ("", "zero_pp_rank_0_")
            ]
            if not any(path in names for path in paths):
                yield Damage(DamageKind.MISSING, paths[0], "is missing beside the optimizer state")


def _listed(numbers: Collection[int]) -> str:
    return ", ".join(map(str, sorted(numbers)[:3])) + (", …" if len(numbers) > 3 else "")  # noqa: PLR2004 - as many as are listed
