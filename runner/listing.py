"""A script: the modules of a package, as an image has them. It runs inside, as a step does.

Standard library, Python 3.6 or newer: `discover` sends this file's text with one call at
its end. Files are read and parsed, never imported; only the parents of a dotted name are.
"""

import ast
import contextlib
import importlib.util
import io
import json
import keyword
import sys
import warnings
from pathlib import Path
from typing import Dict, List, Optional, Tuple

PAGE = 8000
"""Characters of one answer: what a step prints is kept up to 16 KiB."""

Fact = Tuple[str, str, int, Optional[int]]
"""(module, file, lines, callables); callables is None for a file that does not parse."""


def print_page(package: str, page: int) -> None:
    """Print a page of `list_package` as ASCII JSON. The last page is shorter than PAGE."""
    # A package's sources may warn when they are parsed, and standard error is output too.
    warnings.simplefilter("ignore")
    text = json.dumps(list_package(package))
    sys.stdout.write(text[page * PAGE : (page + 1) * PAGE])


def list_package(package: str) -> Tuple[Optional[str], List[Fact]]:
    """(version, modules by name); the version is None where there is no such package, '' if not known."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # a parent's __init__ may print
            spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return None, []
    files: Dict[str, Path] = {}
    if spec.origin is not None and spec.origin.endswith(".py"):
        files[package] = Path(spec.origin)
    for folder in spec.submodule_search_locations or ():
        _walk(package, Path(folder), files)
    return _version(package), [_fact(module, files[module]) for module in sorted(files)]


def count_callables(source: bytes) -> int:
    """Public functions, and public classes with methods, at the top level. Raises SyntaxError, ValueError."""
    return sum(map(_is_callable, _top_level(ast.parse(source).body)))


def _walk(prefix: str, folder: Path, files: Dict[str, Path]) -> None:
    """Add the modules of a package's folder. As for an import, a package hides a module of its name."""
    entries = sorted(folder.iterdir()) if folder.is_dir() else []
    for entry in entries:
        init = entry / "__init__.py"
        if _can_be_imported(entry.name) and init.is_file():
            module = prefix + "." + entry.name
            files.setdefault(module, init)
            _walk(module, entry, files)
    for entry in entries:
        if entry.suffix == ".py" and entry.stem != "__init__" and _can_be_imported(entry.stem):
            files.setdefault(prefix + "." + entry.stem, entry)


def _can_be_imported(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name)


def _fact(module: str, file: Path) -> Fact:
    source = file.read_bytes()
    callables: Optional[int] = None
    with contextlib.suppress(SyntaxError, ValueError, RecursionError):
        callables = count_callables(source)
    return module, str(file.resolve()), len(source.splitlines()), callables


def _top_level(body: List[ast.stmt]) -> List[ast.stmt]:
    """The statements of a module, and of its `if`, `try` and `with` statements."""
    found = []
    for statement in body:
        found.append(statement)
        for part in ("body", "orelse", "handlers", "finalbody"):
            if isinstance(statement, (ast.If, ast.Try, ast.With, ast.ExceptHandler)):
                found += _top_level(getattr(statement, part, []))
    return found


def _is_callable(statement: ast.stmt) -> bool:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    if isinstance(statement, functions):
        return not statement.name.startswith("_")
    if isinstance(statement, ast.ClassDef):
        has_method = any(isinstance(inner, functions) for inner in statement.body)
        return has_method and not statement.name.startswith("_")
    return False


def _version(package: str) -> str:
    """Of the distribution that put the package there: its import name need not be its name."""
    path = package.replace(".", "/")
    for place in filter(Path.is_dir, map(Path, sys.path)):
        for folder in sorted(place.glob("*.dist-info")) + sorted(place.glob("*.egg-info")):
            installed = any(line.startswith((path + "/", path + ".py,")) for line in _lines(folder, "RECORD"))
            if installed or package.split(".")[0] in _lines(folder, "top_level.txt"):
                for line in _lines(folder, "METADATA") + _lines(folder, "PKG-INFO"):
                    if line.startswith("Version:"):
                        return line[len("Version:") :].strip()
    return ""


def _lines(folder: Path, name: str) -> List[str]:
    try:
        return (folder / name).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
