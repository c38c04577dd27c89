"""Count a source tree, room by room, so that a rework can be held against what it started from.

    python tools/count.py [ROOT] [--against OTHER_ROOT] [--deep]

prints a Markdown table. A room is a second-level folder, such as seedbed/ops. The columns:

- files, lines: Python files, and their lines in all.
- code: lines without blank lines, comments and docstrings.
- median, longest: lines of code of a function, from `def` on, so that adding an `Args:` section
  makes no function longer. Functions inside a function count in both.
- function words: docstrings that begin with one of `FUNCTION_WORDS`, not with an imperative verb.
- only "See": docstrings that refer elsewhere and say nothing themselves.
- persons: words in docstrings and comments that make a person of a program.
- functions that need Args: public functions, and public methods of public classes without
  `@override`, that have no `Args:` section though a parameter needs an entry: its type is a bare
  number, array or Any, and its unit, shape or range is in neither its name nor a comment on its
  line. An upper bound: a reader may know what a `port: int` is.

Generated code (*_pb2*) and folders reached through symbolic links are left out.
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

PRODUCT = ("seedbed", "services")
TOTALS = {
    "product": PRODUCT,
    "benchmarks": ("bench", "benchmarks"),
    "tests": ("tests",),
    "tools": ("tools", "scripts"),
}
COUNTED = ("files", "lines", "code")
LENGTHS = ("median", "longest")
FOUND = ("function words", 'only "See"', "persons", "functions that need Args")
COLUMNS = (*COUNTED, *LENGTHS, *FOUND)

# A docstring begins with an imperative verb, never with one of these.
FUNCTION_WORDS = (
    *("What", "Whether", "How", "Where", "When", "Why", "Who", "Which", "If", "As", "Until"),
    *("Of", "Off", "For", "From", "To", "Those", "So", "It", "The way"),
)
FUNCTION_WORD = re.compile(rf"({'|'.join(FUNCTION_WORDS)})\b")
PERSON = re.compile(r"\b(who|whoever|nobody|somebody|whom|himself)\b", re.IGNORECASE)
BARE_TYPES = {"int", "float", "Any", "Tensor", "Array", "ArrayLike", "NDArray", "ndarray"}
UNIT_IN_NAME = re.compile(
    r"_(s|ms|us|ns|h|hz|fps)$|_per_[a-z]+$|^(count|num)_"
    r"|(^|_)(seconds|minutes|hours|bytes|kib|mib|gib|steps|frames|count)$"
)
COMMENT = re.compile(r"# *(?!noqa|type:|pragma)\S")  # for readers, not for a linter
LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class FileFigures:
    """Hold the figures of one file."""

    sums: Counter[str]  # by column, `LENGTHS` aside
    function_lengths: list[int]  # lines of code


def count_file(path: Path) -> FileFigures:
    """Count one file."""
    text = path.read_text(encoding="utf-8")
    nodes = list(ast.walk(tree := ast.parse(text, str(path))))
    strings = [node.value for node in nodes if isinstance(node, ast.Expr) and is_string(node.value)]
    docstrings = [ast.literal_eval(string).strip() for string in strings]
    code, comments = split_lines(text, {(item.lineno, item.col_offset) for item in strings})
    found = (
        sum(bool(FUNCTION_WORD.match(docstring)) for docstring in docstrings),
        sum(only_refers(docstring) for docstring in docstrings),
        sum(len(PERSON.findall(prose)) for prose in (*docstrings, *comments.values())),
        sum(needs_args(function, comments) for function in public_functions(tree.body)),
    )
    counted = (1, len(text.splitlines()), len(code))
    return FileFigures(
        Counter(dict(zip((*COUNTED, *FOUND), (*counted, *found), strict=True))),
        [
            sum(line in code for line in range(node.lineno, (node.end_lineno or 0) + 1))
            for node in nodes
            if isinstance(node, Function)
        ],
    )


def is_string(node: ast.expr) -> bool:
    """Tell a string from other expressions; one that is a statement is a docstring."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def split_lines(text: str, docstrings: set[tuple[int, int]]) -> tuple[set[int], dict[int, str]]:
    """Find the lines of code and the comments of a source text.

    Args:
        text: The source.
        docstrings: (line, column) at which each docstring starts.

    Returns:
        Numbers of the lines that hold code, and comments by line number; both count from 1.
    """
    code: set[int] = set()
    comments: dict[int, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments[token.start[0]] = token.string
        elif token.type not in LAYOUT and token.start not in docstrings:
            code.update(range(token.start[0], token.end[0] + 1))
    return code, comments


def only_refers(docstring: str) -> bool:
    """Tell whether a docstring is one sentence that begins with "See"."""
    return docstring.startswith("See ") and ". " not in " ".join(docstring.split())


def public_functions(body: Sequence[ast.stmt]) -> Iterator[Function]:
    """Yield the public functions of a module's body, and the methods of its public classes."""
    for node in body:
        if not isinstance(node, Function | ast.ClassDef) or node.name.startswith("_"):
            continue
        if isinstance(node, ast.ClassDef):
            yield from public_functions(node.body)
        elif not any(last_name(decorator) == "override" for decorator in node.decorator_list):
            yield node


def needs_args(function: Function, comments: dict[int, str]) -> bool:
    """Tell whether a function lacks an `Args:` section which a parameter of it needs."""
    if re.search(r"^ *Args:$", ast.get_docstring(function) or "", re.MULTILINE):
        return False
    given = function.args
    return any(
        is_bare(parameter.annotation)
        and not parameter.arg.startswith("_")
        and not UNIT_IN_NAME.search(parameter.arg)
        and not COMMENT.match(comments.get(parameter.end_lineno or parameter.lineno, ""))
        for parameter in (*given.posonlyargs, *given.args, *given.kwonlyargs)
    )


def is_bare(annotation: ast.expr | None) -> bool:
    """Tell whether a type is a bare number, array or Any, `None` and element types aside."""
    if isinstance(annotation, ast.BinOp):
        return is_bare(annotation.left) or is_bare(annotation.right)
    if isinstance(annotation, ast.Subscript):
        annotation = annotation.value
    return last_name(annotation) in BARE_TYPES


def last_name(node: ast.expr | None) -> str:
    """Return `c` for `a.b.c`, and an empty string for what is no name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def python_files(root: Path, top: str) -> Iterator[Path]:
    """Yield the files under a top folder, if it exists, relative to the root."""
    if (root / top).is_symlink():
        return
    for folder, _, names in os.walk(root / top):  # follows no links
        for name in names:
            if name.endswith(".py") and "_pb2" not in name:
                yield (Path(folder) / name).relative_to(root)


def rooms_of(path: Path, deep: bool) -> set[str]:
    """List the folders that a file counts towards: its room and, if deep, those inside it."""
    folders = path.parent.parts
    return {"/".join(folders[:depth]) for depth in range(2, max(3, len(folders) * deep + 1))}


def count_tree(root: Path, deep: bool) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Count a checkout; return the rows by room, and the rows by total."""
    rooms: defaultdict[str, list[FileFigures]] = defaultdict(list)
    totals: dict[str, list[FileFigures]] = {name: [] for name in TOTALS}
    for total, tops in TOTALS.items():
        for path in (path for top in tops for path in python_files(root, top)):
            totals[total].append(count_file(root / path))
            for room in rooms_of(path, deep) if total == "product" else ():
                rooms[room].append(totals[total][-1])
    return (
        {name: row_of(rooms[name]) for name in sorted(rooms)},
        {name: row_of(totals[name]) for name in totals},
    )


def row_of(files: Sequence[FileFigures]) -> list[str]:
    """Sum up files into a row, in the order of `COLUMNS`."""
    sums = sum((file.sums for file in files), Counter[str]())
    lengths = [length for file in files for length in file.function_lengths] or [0]
    figures = {**sums, "median": median(lengths), "longest": max(lengths)}
    return [f"{figures.get(column, 0):,}".removesuffix(".0") for column in COLUMNS]


def main() -> None:
    """Read the command line; print the rooms, then the totals."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("root", nargs="?", type=Path, default=Path(), help="checkout to count")
    parser.add_argument("--against", type=Path, help="older checkout; its totals come first")
    parser.add_argument("--deep", action="store_true", help="list the folders inside rooms too")
    options = parser.parse_args()
    rooms, totals = count_tree(options.root, options.deep)
    if not rooms:
        parser.error(f"{options.root} has no Python files in {' or '.join(PRODUCT)}")
    before = count_tree(options.against, deep=False)[1] if options.against else None
    table: dict[str, Sequence[str]] = {"room": COLUMNS, "---": ["---:"] * len(COLUMNS), **rooms}
    for name, row in totals.items():
        both = map(" -> ".join, zip(before[name], row, strict=True)) if before else row
        table[f"**{name}**"] = list(both)
    for name, cells in table.items():
        print(f"| {' | '.join((name, *cells))} |")


if __name__ == "__main__":
    main()
