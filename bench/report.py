"""Results as tables: Markdown, which is readable on a terminal too."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from seedbed.runtime.formats import columns, fill

Case = Mapping[str, Any]


def named(cases: Mapping[str, Case]) -> list[dict[str, Any]]:
    """Return the cases, each with its name."""
    return [{"name": name, **case} for name, case in cases.items()]


class _Series(dict[str, Any]):
    def __format__(self, form: str) -> str:
        median, low, high = (format(self[it], form) for it in ("median", "min", "max"))
        return f"{median} ({low} to {high})"


class Table(NamedTuple):
    """A Markdown table of a part's results.

    Title and cells are templates of `seedbed.runtime.formats.fill`. A series is shown as its
    median with (least to greatest), and what is not in an older file as `-`.

    Attributes:
        title: Of the part's results; a sentence of its own in a table without columns.
        head: Heads of the columns, with `|` between them.
        cells: Cells of a case, likewise.
        rows: Takes the part's results, and returns the case of each row.
    """

    title: str
    head: str = ""
    cells: str = ""
    rows: Callable[[Any], Iterable[Case]] = lambda part: part["cases"]

    def markdown(self, part: Case) -> str:
        """Return the table of a part, whose columns line up; "" without rows."""
        title = fill(self.title, part)
        if not self.head:
            return title
        cells = self.cells.split(" | ")
        table = [self.head.split(" | ")]
        for case in self.rows(part):
            shown = {
                name: _Series(value) if isinstance(value, dict) and "median" in value else value
                for name, value in case.items()
            }
            table.append([fill(cell, shown) for cell in cells])
        if len(table) == 1:
            return ""
        lines = columns(table, "<" * len(cells), " | ").splitlines()
        width = max(map(len, lines))
        rule = re.sub("[^|]", "-", f"{lines[0]:<{width}}")
        head, *body = (f"| {line:<{width}} |" for line in lines)
        return "\n".join([f"**{title}**", "", head, f"|-{rule}-|", *body])


def blocks(tables: Iterable[Table], part: Case) -> list[str]:
    """Return the tables of a part that have rows."""
    return [text for table in tables if (text := table.markdown(part))]


def heading(results: Case) -> str:
    """Return what the figures depend on, as a list."""
    machine, revision = results["machine"], results["revision"]
    packages = ", ".join(f"{name} {v}" for name, v in machine["packages"].items() if v)
    lines = [
        f"`{results['command']}`, {results['time']}, revision {revision['commit'][:10]}"
        + (" with changes" if revision["changed"] else "")
        + f", {results['runs']} runs"
        + (", quick: no figures to quote" if results["quick"] else ""),
        f"{machine['cores']:g} cores of {machine['cpu']}, {machine['memory_gib']:g} GiB, "
        f"float32 matrix product {machine['gemm_gflops']:.0f} GFLOP/s, load before "
        f"{machine['load_average_1m']:.1f}; Python {machine['python']}, {packages}",
        "took " + ", ".join(f"{part} {s:.0f} s" for part, s in results["seconds"].items()),
    ]  # fmt: skip
    lines += [f"{part} failed, and is missing" for part in results.get("failed", {})]
    return "\n".join(f"- {line}" for line in lines)
