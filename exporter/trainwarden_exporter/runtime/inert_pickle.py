"""Reads the structure of a pickle without executing any of it.

No class is imported and no function is called: what a pickle would construct becomes a `Made`,
which holds the name and the arguments of the constructor. Source of the opcodes:
Lib/pickletools.py.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

_OPCODES_PER_PAUSE = 1000


class Global(str):
    """The name of a class or function, as `module name`."""

    __slots__ = ()


@dataclass(eq=False, slots=True)
class Made:
    """An object that the pickle would construct. It may contain itself."""

    name: str
    state: Any = None
    items: dict[Any, Any] = field(default_factory=dict)
    """Its items, if it is a mapping such as OrderedDict."""


@dataclass(frozen=True, slots=True)
class PickleStructure:
    """One pickle."""

    root: Any
    persistent_ids: tuple[Any, ...]
    """The arguments of its persistent ids, by which torch refers to storages."""


class _Mark:
    __slots__ = ()


def read_pickle(data: bytes, *, pause: Callable[[], None]) -> PickleStructure:
    """Returns the structure of the first pickle in `data`; calls `pause` now and then.

    Raises ValueError if the pickle is damaged.
    """
    machine = _Machine()
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            if opcode.name == "STOP":
                return PickleStructure(machine.stack.pop(), tuple(machine.persistent_ids))
            machine.apply(opcode.name, argument)
            if count % _OPCODES_PER_PAUSE == 0:
                pause()
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError) as error:
        raise ValueError(f"malformed pickle: {error}") from error
    raise ValueError("malformed pickle: no end")  # genops raises ValueError before


def _is_plain_key(key: Any) -> bool:
    """Whether a key hashes at once: tuples within tuples may take exponential time."""
    if isinstance(key, tuple):
        return not any(isinstance(part, tuple | list | dict | set) for part in key)
    return not isinstance(key, list | dict | set)


class _Machine:
    """The stack of an unpickler that constructs only plain containers."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.persistent_ids: list[Any] = []
        self._memo: dict[int, Any] = {}

    def apply(self, name: str, argument: Any) -> None:
        """Raises LookupError, TypeError, ArithmeticError or AttributeError if malformed."""
        if name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name]())
        elif name in _METHODS:
            _METHODS[name](self, argument)
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            self._memo[argument] = self.stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            self.stack.append(self._memo[argument])
        elif name.startswith("TUPLE") and len(name) == len("TUPLE1"):
            count = int(name[-1])
            self.stack[-count:] = [tuple(self.stack[-count:])]
        elif name not in ("PROTO", "FRAME", "READONLY_BUFFER"):
            self.stack.append(argument)  # a literal

    def memoize(self, _: Any) -> None:
        self._memo[len(self._memo)] = self.stack[-1]

    def pop_to_mark(self) -> list[Any]:
        index = len(self.stack) - 1
        while not isinstance(self.stack[index], _Mark):
            index -= 1
            if index < 0:
                raise IndexError("no mark")
        items = self.stack[index + 1 :]
        del self.stack[index:]
        return items

    def put_items(self, pairs: list[Any]) -> None:
        target = self.stack[-1]
        items = target.items if isinstance(target, Made) else target
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if not _is_plain_key(key):
                continue  # malformed, of a class that is not constructed, or slow to hash
            items[key] = value

    def append(self, values: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, list):
            target.extend(values)

    def dict_of_marked(self, _: Any) -> None:
        pairs = self.pop_to_mark()
        self.stack.append({})
        self.put_items(pairs)

    def set_item(self, _: Any) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.put_items([key, value])

    def append_one(self, _: Any) -> None:
        self.append([self.stack.pop()])

    def stack_global(self, _: Any) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise ValueError("a class without a name")  # noqa: TRY004 - a malformed stream
        self.stack.append(Global(f"{module} {name}"))

    def make(self, _: Any) -> None:
        _, maker = self.stack.pop(), self.stack.pop()
        self.stack.append(Made(str(maker) if isinstance(maker, Global) else ""))

    def make_with_keywords(self, _: Any) -> None:
        self.stack.pop()
        self.make(None)

    def make_from_marked(self, argument: Any) -> None:
        arguments = self.pop_to_mark()
        maker = argument if isinstance(argument, str) else arguments.pop(0)
        name = str(maker) if isinstance(maker, str | Global) else ""
        self.stack.append(Made(name))

    def build(self, _: Any) -> None:
        state = self.stack.pop()
        target = self.stack[-1]
        if isinstance(target, Made):
            target.state = state

    def persist(self, argument: Any) -> None:
        key = self.stack.pop() if argument is None else argument
        self.persistent_ids.append(key)
        self.stack.append(Made("persistent"))


_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple,
    "EMPTY_SET": list,  # its members need not be hashable here
    "MARK": _Mark,
}

_METHODS: dict[str, Callable[[_Machine, Any], object]] = {
    "MEMOIZE": _Machine.memoize,
    "POP": lambda machine, _: machine.stack.pop(),
    "POP_MARK": lambda machine, _: machine.pop_to_mark(),
    "DUP": lambda machine, _: machine.stack.append(machine.stack[-1]),
    "LIST": lambda machine, _: machine.stack.append(machine.pop_to_mark()),
    "FROZENSET": lambda machine, _: machine.stack.append(tuple(machine.pop_to_mark())),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.pop_to_mark())),
    "DICT": _Machine.dict_of_marked,
    "APPEND": _Machine.append_one,
    "APPENDS": lambda machine, _: machine.append(machine.pop_to_mark()),
    "ADDITEMS": lambda machine, _: machine.append(machine.pop_to_mark()),
    "SETITEM": _Machine.set_item,
    "SETITEMS": lambda machine, _: machine.put_items(machine.pop_to_mark()),
    "GLOBAL": lambda machine, name: machine.stack.append(Global(name)),
    "STACK_GLOBAL": _Machine.stack_global,
    "REDUCE": _Machine.make,
    "NEWOBJ": _Machine.make,
    "NEWOBJ_EX": _Machine.make_with_keywords,
    "INST": _Machine.make_from_marked,
    "OBJ": _Machine.make_from_marked,
    "BUILD": _Machine.build,
    "PERSID": _Machine.persist,
    "BINPERSID": _Machine.persist,
}
