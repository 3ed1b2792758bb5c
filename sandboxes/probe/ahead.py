"""What a zygote does ahead, once, that each step would do again, and that no step can see.

Three things: it imports the modules that the target imports from outside its own
package; it reads the code objects of the package's own files, for their loader to hand
out; it compiles the regular expressions that importing the target compiles. What the
target's package itself does at import is left to the steps: it is what they measure.
"""

import importlib
import importlib.machinery
import os
import re
import sys
from types import CodeType
from typing import Any, Dict, List, Tuple


def look_at(target: str) -> Dict[str, Any]:
    """In a child that imports the target: its file and version, and what the import brings along.

    Keys: file, version, needs (modules of others, in order), own (files of the package),
    patterns ([kind, text, flags] of regular expressions). Or only error, a text.
    """
    before = set(sys.modules)
    known = set(re._cache)  # type: ignore[attr-defined]  # no public way to ask what is compiled
    try:
        module = importlib.import_module(target)
    except BaseException as error:
        return {"error": "%s: %s" % (type(error).__name__, str(error)[:500])}
    file = getattr(module, "__file__", None)
    if not file or not file.endswith(".py"):
        return {"error": "it has no Python source: __file__ is %r" % (file,)}
    package = target.split(".")[0]
    needs, own = [], []
    for name, loaded in list(sys.modules.items()):
        if name in before or getattr(loaded, "__spec__", None) is None:
            continue
        if name.split(".")[0] == package:
            own.append([name, getattr(loaded, "__file__", None) or ""])
        else:
            needs.append(name)
    patterns = []
    for kind, text, flags in [key[:3] for key in re._cache if key not in known]:  # type: ignore[attr-defined]
        if kind is str:
            patterns.append(["str", text, int(flags)])
        elif kind is bytes:
            patterns.append(["bytes", text.decode("latin-1"), int(flags)])
    return {"file": file, "version": _version(package), "needs": needs, "own": own, "patterns": patterns}


def try_imports(names: List[str], package: str) -> Dict[str, Any]:
    """In a child: {bad: the first of `names` that cannot be imported ahead}.

    It fails to import, it brings in the target's package, or it starts threads, which a fork would lose.
    """
    for name in names:
        try:
            importlib.import_module(name)
        except BaseException:
            return {"bad": name}
        if any(loaded.split(".")[0] == package for loaded in sys.modules):
            return {"bad": name}
        if len(os.listdir("/proc/self/task")) > 1:
            return {"bad": name}
    return {}


def compile_patterns(patterns: List[Tuple[str, str, int]]) -> None:
    """Fill the cache of the re module."""
    for kind, text, flags in patterns:
        try:
            re.compile(text if kind == "str" else text.encode("latin-1"), flags)
        except re.error:
            continue  # it was made with flags that cannot be given again


def keep_code(own: List[Tuple[str, str]]) -> None:
    """Let the loader of source files hand out code that is in memory, while the file is unchanged."""
    kept: Dict[str, Tuple[Tuple[int, int], CodeType]] = {}
    loader_class = importlib.machinery.SourceFileLoader
    load = loader_class.get_code
    for name, file in own:
        if file.endswith(".py"):
            try:
                code = load(loader_class(name, file), name)
                if code is not None:
                    kept[file] = _signature(file), code
            except (OSError, ImportError, SyntaxError):
                continue  # the step will meet it, and say so

    # Bound here: a script may patch what `os` holds before it imports.
    def get_code(self: Any, fullname: str, signature: Any = _signature, load: Any = load) -> Any:
        found = kept.get(self.path)
        if found is not None and found[0] == signature(self.path):
            return found[1]
        return load(self, fullname)

    loader_class.get_code = get_code  # type: ignore[method-assign]  # for the steps that are forked from here


def _signature(file: str, stat: Any = os.stat) -> Tuple[int, int]:
    facts = stat(file)
    return facts.st_mtime_ns, facts.st_size


def _version(package: str) -> str:
    try:
        from importlib.metadata import PackageNotFoundError, version
    except ImportError:
        return ""  # Python 3.7 and older have no importlib.metadata
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
