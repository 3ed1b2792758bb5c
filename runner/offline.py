"""`offline/scout`: the built-in model that needs no network, and is not an LLM.

It answers the strategies' prompts by analysing the source that they contain, by rules and
a seeded draw: the same for the same module, role, seed and call number. It stands in for a model in
demos, tests and benchmarks of the engine; tables say so wherever its rows appear.
"""

from __future__ import annotations

import ast
import functools
import math
import random
import re
from collections.abc import Callable
from dataclasses import dataclass

from runner.answers import parsed
from runner.nouns import Answer, Question, Usage, content_id

NAME = "offline/scout"

_MODULE = re.compile(r"^Module under test: ([\w.]+)$", re.MULTILINE)
_SOURCE = re.compile(r"<source>\n(.*?)\n</source>", re.DOTALL)
_STEPS = re.compile(r"exactly (\d+) Python code blocks")
_COUNT = re.compile(r"Here are (\d+) candidate")
_BLOCK = re.compile(r"```python\n(.*?)\n```", re.DOTALL)
_SIZE = re.compile(r"exactly (\d+) test functions")
_SCRIPTS = re.compile(r"Branches discovered: \d+ in (\d+) scripts")

SUITE_SIZE = 12
"""Tests of a suite for which no size is asked."""
SUITE_BIAS, SUITE_SPREAD = 0.3, 0.25
"""Mean and standard deviation of ln(tests written / tests asked for): like an LLM it counts badly."""

AVOIDED = (
    "run", "serve", "main", "prompt", "pause", "confirm", "launch", "edit", "watch", "loop", "reload",
    "sleep", "wait", "connect", "listen", "live", "pager", "input", "exit", "abort", "exec", "spawn",
    "shell", "kill", "daemon", "forever", "stream", "request", "send", "receive", "websocket", "debug",
    "get_terminal", "time", "date", "now", "random", "token", "uuid", "secret", "nonce", "salt", "thread",
    "lock", "atexit", "signal",
)  # fmt: skip
"""Words in names of what is not called: it would wait, reach out, or answer differently each time."""

_GUESSES: dict[str, tuple[str, ...]] = {
    "text": ("'text'", "'a=1; b=2'", "'text/html; charset=utf-8'", "''", "'x' * 40", "'a,b, \"c\"'"),
    "bytes": ("b'bytes'", "b'a=1&b=2'", "b''"),
    "number": ("1", "0", "-3", "10", "2.5"),
    "flag": ("True", "False"),
    "none": ("None",),
    "list": ("['a', 'b']", "[]", "[('k', 'v')]", "(1, 2)"),
    "dict": ("{'k': 'v'}", "{}", "{'a': [1, 2], 'b': None}"),
    "callable": ("str", "len", "print"),
    "object": ("Exception('e')", "type('T', (), {})", "..."),
}

_BY_NAME: tuple[tuple[tuple[str, ...], str], ...] = (
    (("name", "text", "string", "value", "key", "path", "url", "header", "msg", "message", "s"), "text"),
    (("data", "body", "content", "raw"), "bytes"),
    (("count", "size", "length", "num", "n", "width", "height", "index", "code", "status", "max"), "number"),
    (("is_", "has_", "allow", "force", "strict", "show", "use", "enable"), "flag"),
    (("items", "values", "args", "lines", "list", "seq", "iterable"), "list"),
    (("dict", "mapping", "headers", "options", "params", "config", "environ", "kwargs"), "dict"),
    (("func", "callback", "factory", "fn", "hook", "handler", "f"), "callable"),
)

SURVEY = """\
import {module} as module
import inspect

POOL = [{pool}]
AVOIDED = {avoided}


def plain(name):
    return not name.startswith("__") and not any(word in name.lower() for word in AVOIDED)


def attempts(thing):
    try:
        kinds = [parameter.kind for parameter in inspect.signature(thing).parameters.values()
                 if parameter.default is parameter.empty]
        size = sum(kind in (0, 1) for kind in kinds) + {extra}
    except (TypeError, ValueError):
        size = 1
    for turn in range({turns}):
        arguments = [POOL[(turn * 2 + place) % len(POOL)] for place in range(size)]
        try:
            made = thing(*arguments)
        except Exception as error:
            print(type(error).__name__)
            continue
        if inspect.iscoroutine(made):
            made.close()
        elif inspect.isgenerator(made):
            try:
                list(zip(made, range(20)))
            except Exception as error:
                print(type(error).__name__)
        else:
            yield made


package = module.__name__.split(".")[0]
names = sorted(name for name in vars(module) if plain(name))
for name in names[{part}::{parts}]:
    thing = getattr(module, name)
    if not callable(thing) or str(getattr(thing, "__module__", "")).split(".")[0] != package:
        continue
    for made in attempts(thing):
        if inspect.isclass(thing):
            for part in sorted(filter(plain, dir(type(made)))):
                member = getattr(type(made), part, None)
                if inspect.isfunction(member):
                    for _ in attempts(getattr(made, part)):
                        pass
print("done", len(names))
"""
"""A script that tries a share of the module's public names with values from a pool."""


@dataclass(frozen=True, slots=True)
class Callee:
    """Something of the module that a script can call."""

    name: str
    required: tuple[str, ...]
    """Its positional parameters without defaults."""
    methods: tuple[str, ...]
    """Of a class, those that take nothing more."""
    is_class: bool


class Scout:
    """See the module's docstring. A Model."""

    name = NAME

    async def ask(self, question: Question, sample: int) -> Answer:
        """The answer to a prompt of ours; raises nothing."""
        text = question.messages[-1].content
        # Not by the whole prompt: what earlier scripts printed may hold times and addresses.
        draw = random.Random(content_id([_module(text), question.role, question.seed, sample]))
        answer = _ROLES.get(question.role, _nothing)(text, draw)
        return Answer(answer, "stop", Usage(), latency_s=0.0, cost_usd=0.0)

    async def close(self) -> None:
        """Nothing to close."""


def _generate(text: str, draw: random.Random) -> str:
    steps = _STEPS.search(text)
    scripts = [_script(text, draw, position) for position in range(int(steps[1]) if steps else 1)]
    if draw.random() < 0.02:
        return "The module is covered well already; I would not add a script."
    return "\n".join(f"```python\n{script}\n```" for script in scripts)


def _script(text: str, draw: random.Random, position: int) -> str:
    """One script: of what the source shows, or a survey; the coverage map makes surveys likelier."""
    module = _module(text)
    known = _SCRIPTS.search(text)
    survey = draw.random() < (0.75 if known else 0.25)
    callees = _callees(text)
    if survey or not callees:
        ran = int(known[1]) if known else draw.randrange(4)
        parts = 6 if known else 12
        return SURVEY.format(
            module=module,
            pool=", ".join(_pool(text, draw)),
            avoided=repr(AVOIDED),
            part=(ran + position) % parts,
            parts=parts,
            extra=1 if "STAGNATION" in text else 0,
            turns=3 if known else 2,
        ).rstrip()
    return _direct(module, callees, draw)


def _direct(module: str, callees: tuple[Callee, ...], draw: random.Random) -> str:
    """Calls of one to three things that the source shows; now and then unguarded, so that some fail."""
    lines = [f"import {module} as module", ""]
    for callee in draw.sample(callees, min(len(callees), draw.randint(1, 3))):
        arguments = ", ".join(_guess(parameter, draw) for parameter in callee.required)
        call = [f"made = module.{callee.name}({arguments})", f"print({callee.name!r}, type(made).__name__)"]
        call += [f"made.{method}()" for method in callee.methods[:3]]
        if draw.random() < 0.3:
            lines += call
        else:
            lines += ["try:", *(f"    {line}" for line in call), "except Exception as error:"]
            lines += [f"    print({callee.name!r}, 'raised', type(error).__name__)"]
    return "\n".join(lines)


def _pool(text: str, draw: random.Random) -> list[str]:
    """Argument expressions for a survey, by what the prompt asks for."""
    if "error handling" in text:
        kinds = ["none", "object", "number", "bytes", "list"]
    elif "interactions" in text:
        kinds = ["callable", "dict", "list", "text", "object"]
    else:
        kinds = ["text", *draw.sample(sorted(_GUESSES), 4)]
    return [draw.choice(_GUESSES[kind]) for kind in kinds]


def _callees(text: str) -> tuple[Callee, ...]:
    """Public functions and classes in the part of a prompt's source that can be parsed."""
    source = _SOURCE.search(text)
    return _callees_in(source[1]) if source else ()


@functools.lru_cache(maxsize=512)
def _callees_in(source: str) -> tuple[Callee, ...]:
    found = []
    for node in _tree(source).body:
        if isinstance(node, ast.FunctionDef) and _callable(node.name):
            found.append(Callee(node.name, _required(node, 0), (), False))
        elif isinstance(node, ast.ClassDef) and _callable(node.name):
            methods = [item for item in node.body if isinstance(item, ast.FunctionDef)]
            starts = [method for method in methods if method.name == "__init__"]
            plain = [
                method.name
                for method in methods
                if _callable(method.name) and not method.decorator_list and not _required(method, 1)
            ]
            required = _required(starts[0], 1) if starts else ()
            found.append(Callee(node.name, required, tuple(plain), True))
    return tuple(found)


def _tree(source: str) -> ast.Module:
    """The source up to the last line at which it can be parsed."""
    lines = source.split("\n")
    for end in range(len(lines), 0, -1):
        tree = parsed("\n".join(lines[:end]))
        if tree is not None:
            return tree
    return ast.Module([], [])


def _callable(name: str) -> bool:
    return not name.startswith("_") and not any(word in name.lower() for word in AVOIDED)


def _required(node: ast.FunctionDef, skip: int) -> tuple[str, ...]:
    arguments = [*node.args.posonlyargs, *node.args.args][skip:]
    kept = len(arguments) - len(node.args.defaults)
    return tuple(argument.arg for argument in arguments[: max(0, kept)])


def _guess(parameter: str, draw: random.Random) -> str:
    for words, kind in _BY_NAME:
        if any(parameter == word or (len(word) > 1 and word in parameter) for word in words):
            return draw.choice(_GUESSES[kind])
    return draw.choice(_GUESSES[draw.choice(list(_GUESSES))])


def _suite(text: str, draw: random.Random) -> str:
    """A pytest file: what passed in the strongest suite shown, and calls of what the source shows."""
    asked = _SIZE.search(text)
    wanted = int(asked[1]) if asked else SUITE_SIZE
    size = max(1, round(wanted * math.exp(draw.gauss(SUITE_BIAS, SUITE_SPREAD))))
    module, callees = _module(text), _callees(text)
    shown = _BLOCK.findall(text[text.find("</source>") :])
    tests = _passing(shown[-1]) if shown else []
    if len(tests) > size:
        tests = draw.sample(tests, size)
    known = set(tests)
    for _ in range(4 * size):
        if len(tests) >= size or not callees:
            break
        made = _test(draw.choice(callees), draw)
        if made not in known:
            known.add(made)
            tests.append(made)
    lines = ["import " + module + " as module", ""]
    for number, test in enumerate(tests):
        lines += ["", f"def test_{number}():", test, ""]
    if not tests:
        lines += ["", "def test_0():", "    assert module.__name__", ""]
    return "```python\n" + "\n".join(lines).rstrip() + "\n```"


def _test(callee: Callee, draw: random.Random) -> str:
    """The body of a test: a call that gives the same each time. It fails where the call raises."""
    call = f"module.{callee.name}({', '.join(_guess(parameter, draw) for parameter in callee.required)})"
    lines = [f"    made = {call}", f"    assert type(made) is type({call})"]
    if not callee.is_class:
        lines.append(f"    assert repr(made)[:9] == repr({call})[:9]")
    lines += [f"    made.{method}()" for method in callee.methods[: draw.randint(0, 3)]]
    return "\n".join(lines)


def _passing(suite: str) -> list[str]:
    """Bodies of a suite's test functions that carry no mark of failure."""
    lines = suite.split("\n")
    return [
        "\n".join(lines[node.body[0].lineno - 1 : node.end_lineno])
        for node in _tree(suite).body
        if isinstance(node, ast.FunctionDef)
        and node.name.startswith("test_")
        and "FAILING" not in lines[node.lineno - 1]
    ]


def _select(text: str, draw: random.Random) -> str:
    """The candidate that names the most of the module, as one who cannot see coverage might."""
    candidates = _BLOCK.findall(text[text.rfind("Here are ") :])
    count = _COUNT.search(text)
    if not candidates:
        return str(draw.randint(1, int(count[1]) if count else 1))
    return str(max(range(len(candidates)), key=lambda index: len(set(candidates[index].split()))) + 1)


def _score(text: str, draw: random.Random) -> str:
    """Two numbers: distinct words in the plan, and how much of it is a survey; with a little noise."""
    plan = text[text.rfind("Here is a plan") :]
    gain = min(50, len(set(re.findall(r"[a-z_]{4,}", plan))) // 3 + draw.randint(0, 6))
    reach = min(50, 12 * plan.count("POOL = ") + draw.randint(0, 6))
    return f"{gain}, {reach}"


def _nothing(text: str, draw: random.Random) -> str:
    return "I only know how to answer the prompts of the script and suite strategies."


def _module(text: str) -> str:
    found = _MODULE.search(text)
    return found[1] if found else "builtins"


_ROLES: dict[str, Callable[[str, random.Random], str]] = {
    "generate": _generate,
    "select": _select,
    "score": _score,
    "seed": _suite,
    "breed": _suite,
}
