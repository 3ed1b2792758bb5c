"""A mutant put in the place of the original in a process that runs already.

A function's code object is exchanged; the function keeps its identity, its closure, its
defaults, whatever decorators and caches hold it. That is as good as a changed source for
code that has not run yet, and only for that (see evaluate.py for what takes the slow path).
"""

import gc
import types
from typing import Any, Callable, Dict, List, Tuple

from .mutants import MARK, Mutant, Workshop

Codes = Dict[Tuple[Tuple[str, int], ...], List[types.CodeType]]
"""Code objects by their chain of (name, first line), from the outermost function inwards."""


class Unswappable(Exception):
    """This mutant needs a changed source; the text says why."""


class Swapper:
    """Made after the suite was collected: knows the target's functions that live."""

    def __init__(self, workshop: Workshop) -> None:
        self.workshop = workshop
        self.live: Dict[types.CodeType, List[types.FunctionType]] = {}
        for thing in gc.get_objects():
            if type(thing) is types.FunctionType and thing.__code__.co_filename == workshop.file:
                self.live.setdefault(thing.__code__, []).append(thing)
        self.codes: Codes = {}
        _gather(workshop.original(), (), self.codes)

    def exchanges(
        self, mutant: Mutant, ran: Callable[[], Any]
    ) -> List[Tuple[types.FunctionType, types.CodeType]]:
        """(function, the code it is to have) for each function that changes.

        `ran` is called whenever the changed statement is reached. Raises Unswappable.
        """
        found = self.workshop.definition(mutant)
        if found is None:
            raise Unswappable("it is not in a function's body")
        code, line = found
        changed: Codes = {}
        _gather(planted(code, ran), (), changed)
        exchanges = []
        for chain, (new, *more) in changed.items():
            # Without its decorators the outermost function begins where its `def` is.
            old_chain = ((chain[0][0], line),) + chain[1:]
            olds = self.codes.get(old_chain, [])
            lives = [function for old in olds for function in self.live.get(old, [])]
            if not lives or (len(olds) == 1 and not more and olds[0] == new):
                continue
            if more or len(olds) > 1:
                raise Unswappable("two functions %s begin on line %d" % chain[-1])
            for function in lives:
                if function.__code__.co_freevars != new.co_freevars:
                    raise Unswappable("its free variables are others: %s" % (new.co_freevars,))
                exchanges.append((function, new))
        if not exchanges:
            raise Unswappable("no function with that code lives")
        return exchanges


def _gather(code: types.CodeType, chain: Tuple[Tuple[str, int], ...], found: Codes) -> None:
    """Bodies of classes are looked through: they have run, and their functions live on."""
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            is_class = not const.co_flags & 0x2  # CO_NEWLOCALS: a function's frame has locals of its own
            inner = chain if is_class and not chain else chain + ((const.co_name, const.co_firstlineno),)
            if inner != chain:
                found.setdefault(inner, []).append(const)
            _gather(const, inner, found)


def planted(code: types.CodeType, ran: Callable[[], Any]) -> types.CodeType:
    """The code with `ran` in the place of each mark."""
    consts: List[Any] = []
    changed = False
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            inner = planted(const, ran)
            changed = changed or inner is not const
            consts.append(inner)
        elif isinstance(const, str) and const == MARK:
            changed = True
            consts.append(ran)
        else:
            consts.append(const)
    return with_consts(code, tuple(consts)) if changed else code


def with_consts(code: types.CodeType, consts: Tuple[Any, ...]) -> types.CodeType:
    """A copy with other constants."""
    if hasattr(code, "replace"):
        return code.replace(co_consts=consts)
    names = ["argcount", "kwonlyargcount", "nlocals", "stacksize", "flags", "code"]
    names += [
        "consts",
        "names",
        "varnames",
        "filename",
        "name",
        "firstlineno",
        "lnotab",
        "freevars",
        "cellvars",
    ]
    values = [getattr(code, "co_" + name) for name in names]
    values[names.index("consts")] = consts
    make: Any = types.CodeType
    made: types.CodeType = make(*values)
    return made
