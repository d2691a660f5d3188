"""Our own modules that a program needs: its imports and their imports, at any place in a module.

Read from the sources, without running them. Imports for type checkers only are left out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path


def needed(source: Path, starts: Iterable[str]) -> dict[str, Path]:
    """Files by module, of packages that are directories of `source`."""
    found: dict[str, Path] = {}
    waiting = list(starts)
    while waiting:
        module = waiting.pop()
        path = _file(source, module)
        if module in found or path is None:
            continue
        found[module] = path
        parent = module.rpartition(".")[0]
        if parent:
            waiting.append(parent)
        waiting.extend(_imported(module, path))
    return found


def _file(source: Path, module: str) -> Path | None:
    base = source.joinpath(*module.split("."))
    return next((path for path in (base / "__init__.py", base.with_suffix(".py")) if path.is_file()), None)


def _imported(module: str, path: Path) -> Iterator[str]:
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for statement in _statements(ast.parse(path.read_bytes())):
        if isinstance(statement, ast.Import):
            yield from (name.name for name in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            base = package[: len(package) - statement.level + 1] if statement.level else []
            origin = ".".join([*base, *(statement.module or "").split(".")]).strip(".")
            yield origin
            # These may be names of modules or not: names without a file are dropped later.
            yield from (f"{origin}.{name.name}" for name in statement.names)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            for other in child.orelse:
                yield other
                yield from _statements(other)
            continue
        yield child
        yield from _statements(child)
