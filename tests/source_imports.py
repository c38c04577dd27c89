"""Reading the project's own source: its files, their syntax trees, their imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Import(NamedTuple):
    path: str
    line: int
    module: str
    lazy: bool  # inside a function

    def __str__(self) -> str:
        return f"{self.path}:{self.line} imports {self.module}"


def sources(folder: str) -> list[Path]:
    """Python files below a folder, generated ones apart."""
    return [path for path in sorted((ROOT / folder).rglob("*.py")) if "wire" not in path.parts]


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def imports(folder: str) -> Iterator[Import]:
    """Every import below a folder, `import_module("literal")` too."""
    for path in sources(folder):
        yield from _imports(tree(path), str(path.relative_to(ROOT)), lazy=False)


def _imports(node: ast.AST, path: str, lazy: bool) -> Iterator[Import]:
    modules: list[str] = []
    match node:
        case ast.Import():
            modules = [alias.name for alias in node.names]
        case ast.ImportFrom():
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute, `services...`"
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        case ast.Call(
            func=ast.Attribute(attr="import_module") | ast.Name(id="import_module" | "__import__"),
            args=[ast.Constant(value=str(name)), *_],
        ):
            modules = [name]
    for module in modules:
        yield Import(path, getattr(node, "lineno", 0), module, lazy)
    lazy = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    for child in ast.iter_child_nodes(node):
        yield from _imports(child, path, lazy)


def within(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)
