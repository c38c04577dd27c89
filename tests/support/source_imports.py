"""Reading the project's own source: its files, their syntax trees, their imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
LINK = ROOT / "seedbed" / "services"  # to services/, whose files are read there


class Import(NamedTuple):
    path: str
    line: int
    module: str
    lazy: bool  # inside a function
    typing: bool  # under TYPE_CHECKING

    def __str__(self) -> str:
        return f"{self.path}:{self.line} imports {self.module}"


def sources(folder: str) -> list[Path]:
    """Return the Python files below a folder, without generated ones. Follows no symbolic link."""
    return [
        path
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "v1" not in path.parts and LINK not in path.parents
    ]


def product_sources() -> list[Path]:
    """Return the Python files of the library and of the services."""
    return sources("seedbed") + sources("services")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def imports(folder: str) -> Iterator[Import]:
    """Yield every import below a folder, `import_module("literal")` too."""
    for path in sources(folder):
        yield from file_imports(str(path.relative_to(ROOT)))


def product_imports() -> Iterator[Import]:
    """Yield every import of the library and of the services."""
    yield from imports("seedbed")
    yield from imports("services")


def file_imports(path: str) -> Iterator[Import]:
    """Yield every import of one file."""
    yield from _imports(tree(ROOT / path), path, lazy=False, typing=False)


def _imports(node: ast.AST, path: str, lazy: bool, typing: bool) -> Iterator[Import]:
    modules: list[str] = []
    match node:
        case ast.Import():
            modules = [alias.name for alias in node.names]
        case ast.ImportFrom():
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute, `seedbed...`"
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        case ast.Call(
            func=ast.Attribute(attr="import_module") | ast.Name(id="import_module" | "__import__"),
            args=[ast.Constant(value=str(name)), *_],
        ):
            modules = [name]
    for module in modules:
        yield Import(path, getattr(node, "lineno", 0), module, lazy, typing)
    lazy = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    typing = typing or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    for child in ast.iter_child_nodes(node):
        yield from _imports(child, path, lazy, typing)


def within(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)
