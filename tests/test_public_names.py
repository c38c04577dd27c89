"""Public names of the product that only tests use are dead."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator

import seedbed
from tests.support.source_imports import ROOT, product_sources, sources, tree

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
ENTRY = re.compile(r"seedbed[\w.]+:\w+")
USERS = ("bench", "tools")  # besides the product


def names_used(node: ast.AST) -> Counter[str]:
    """Count the names and attributes that are read below a node; an import is no use.

    A string `module:name` of a registry is one, and what a metric reads.
    """
    used = Counter[str]()
    for part in ast.walk(node):
        match part:
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name):
                used[name] += 1
            case ast.Constant(value=str(text)) if ENTRY.fullmatch(text):
                used[text.partition(":")[2]] += 1
            case ast.Call(
                func=ast.Name(id="counter" | "gauge" | "histogram"),
                args=[_, ast.Constant(value=str(read)), *_],
            ):
                used.update(read.split("."))
    return used


def definitions(module: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """Yield the public names of a module, and the methods of its classes without `@override`."""
    for node in module.body:
        if isinstance(node, Definition):
            yield node.name, node
        if isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, Definition) and not any(
                    ast.unparse(decorator).endswith("override")
                    for decorator in method.decorator_list
                ):
                    yield f"{node.name}.{method.name}", method
        for target in node.targets if isinstance(node, ast.Assign) else []:
            if isinstance(target, ast.Name):
                yield target.id, node


def documented_words() -> set[str]:
    """Collect the words of code blocks of the documentation, of experiments, and the public API."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    experiments = " ".join(path.read_text() for path in (ROOT / "experiments").glob("*.yaml"))
    blocks = [re.findall(r"^```\w*\n(.*?)^```", page.read_text(), re.S | re.M) for page in pages]
    words = {word for page in blocks for block in page for word in re.findall(r"\w+", block)}
    return words | {*re.findall(r":(\w+)", experiments), *getattr(seedbed, "__all__", ())}


def unused_names() -> list[str]:
    product = product_sources()
    used = Counter[str]()
    for path in (*product, *(path for folder in USERS for path in sources(folder))):
        used += names_used(tree(path))
    documented = documented_words()
    return [
        f"{path.relative_to(ROOT)}: {name}"
        for path in product
        for name, node in definitions(tree(path))
        if not any(part.startswith("_") for part in name.split("."))
        and (last := name.rpartition(".")[2]) not in documented
        and used[last] <= names_used(node)[last]
    ]


def test_every_public_name_is_used_outside_tests() -> None:
    """This finds names, not uses: a floor."""
    assert unused_names() == []


def test_the_search_for_unused_names_can_fail() -> None:
    module = ast.parse("def a():\n    a()\nclass B:\n    def c(self): ...\nD = a\n")
    assert [name for name, _ in definitions(module)] == ["a", "B", "B.c", "D"]
    assert names_used(module) == Counter({"a": 2})
    assert names_used(module.body[0]) == Counter({"a": 1})
