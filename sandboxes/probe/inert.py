"""Whether a script could see that modules were imported ahead of it.

A preloaded zygote has the target's third-party and standard modules in sys.modules. To
a script that imports the target before it does anything else, that is the state it would
have brought about itself. One that first changes what an import finds or does (sys.path,
warnings, the environment, a patched function) could tell; it is started plain.
"""

import ast
import re
from typing import Optional

TELLTALE = re.compile(
    r"sys\s*\.\s*modules|\bfrom\s+sys\b|\bsys\s+as\b|meta_path|path_hooks|path_importer_cache"
    r"|\breload\s*\(|import reload|\bgc\s*\.|settrace|setprofile"
)
"""Looks at, or changes, what was loaded: never preloaded, wherever it stands."""

LONGEST = 20000
"""Characters. Up to Python 3.10 a sum of some 100,000 terms kills who parses it: here, the probe's server."""


def starts_inert(script: str, target: str) -> bool:
    """True when everything before the first import of the target's package is without effect on imports."""
    if len(script) > LONGEST or TELLTALE.search(script):
        return False
    try:
        tree = ast.parse(script.encode("utf-8", "surrogatepass"))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return True  # it will not run a line
    package = target.split(".")[0]
    for statement in tree.body:
        if _imports(statement, package):
            return True
        if isinstance(statement, ast.Try):
            first = statement.body[0]
            if _imports(first, package):
                return True
        if not _inert(statement):
            return False
    return True


def _imports(statement: ast.stmt, package: str) -> bool:
    names = []
    if isinstance(statement, ast.Import):
        names = [alias.name for alias in statement.names]
    elif isinstance(statement, ast.ImportFrom):
        names = [statement.module or ""]
    return any(name.split(".")[0] == package for name in names)


def _inert(statement: ast.stmt) -> bool:
    """An import, a docstring, a plain definition, a constant given a name, a print of constants."""
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return True
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
        arguments = statement.args
        defaults = arguments.defaults + [value for value in arguments.kw_defaults if value is not None]
        return not statement.decorator_list and all(_constant(value) for value in defaults)
    if isinstance(statement, ast.Assign):
        return all(isinstance(name, ast.Name) for name in statement.targets) and _constant(statement.value)
    if isinstance(statement, ast.Expr):
        value = statement.value
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "print":
            return all(_constant(argument) for argument in value.args) and not value.keywords
        return _constant(value)
    return isinstance(statement, ast.Pass)


def _constant(value: Optional[ast.expr]) -> bool:
    try:
        ast.literal_eval(value)  # type: ignore[arg-type]  # None is not a literal, and says so
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True
