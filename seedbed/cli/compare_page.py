"""A comparison of runs as a table, for the terminal or in Markdown."""

from collections.abc import Iterator, Mapping
from typing import Any

from seedbed.cli.table_page import wrapped
from seedbed.runtime.formats import (
    NOTHING,
    columns,
    duration,
    money,
    percent,
    si_number,
    significant,
)
from seedbed.sets.resolve import describe_some

_MOST_VALUES = 8


def page(result: Mapping[str, Any], markdown: bool) -> str:
    """Return the page of a result of `compare`, without a line feed at the end.

    Args:
        result: The result.
        markdown: Write the table as Markdown has it.
    """
    blocks = [*_differences(result), _table(result, markdown)]
    if (found := result["confirmation"]) is not None:
        blocks += ["the best of them, on fresh seeds:", _table(found, markdown)]
    remarks = [*result["notes"], *_definitions(result)]
    lines = [line for one in remarks for line in wrapped(f"  {one}")]
    blocks += ["\n".join(lines)] if lines else []
    return "\n\n".join([*blocks, result["sentence"]])


def _table(result: Mapping[str, Any], markdown: bool) -> str:
    rows = [_head(result), *(_cells(group, result) for group in result["groups"])]
    rows = _without_empty(rows)
    return _markdown(rows) if markdown else columns(rows, "<" + ">" * (len(rows[0]) - 1))


def _differences(result: Mapping[str, Any]) -> Iterator[str]:
    differs = result["differs"]
    found = {**differs["settings"], **differs["setup"]}
    if not found:
        yield f"{result['runs']} runs; they differ in the seed alone"
        return
    lines = [f"  {key}: {describe_some(values, _MOST_VALUES)}" for key, values in found.items()]
    yield "\n".join([f"{result['runs']} runs; they differ in", *lines])


def _head(result: Mapping[str, Any]) -> tuple[str, ...]:
    at = f" at {si_number(result['horizon'])}" if result["horizon"] else ""
    to = f"frames to {result['score']:g}" if result["score"] is not None else ""
    return (
        *("setting", "seeds", "lost", "pruned", "reached", to, f"final{at}", "95 %", "median"),
        *("best 3", "frames", "time", "cost", "best is better", "p"),
    )


def _cells(group: Mapping[str, Any], result: Mapping[str, Any]) -> tuple[str, ...]:
    final, times, beside = group["final"], group["to_score"], group.get("worse_than_best")
    interval = final and final["interval"]
    several = len(result["groups"]) > 1
    seeds = len(group["runs"])
    finished = group["states"].get("finished", 0)
    return (
        group["label"],
        str(seeds) if finished == seeds else f"{finished} of {seeds}",
        str(group["lost"]) if group["lost"] else "",
        str(group["states"].get("pruned", "")),
        f"{times['reached']} of {times['of']}" if times else "",
        (si_number(times["median"]) if times["median"] is not None else NOTHING) if times else "",
        f"{significant(final['mean'])}{'*' * _is_partial(group)}" if final else "",
        f"[{significant(interval[0])}, {significant(interval[1])}]" if interval else "",
        significant(final["median"]) if final else "",
        significant(final["best_3"]) if final and final["best_3"] is not None else "",
        si_number(group["env_frames"]),
        duration(group["seconds"]),
        money(group["dollars"]),
        percent(beside["probability"]) if beside else "" if not several else NOTHING,
        _p(beside) if several else "",
    )


def _is_partial(group: Mapping[str, Any]) -> bool:
    """Return whether a group's final leaves out seeds that were lost or pruned."""
    is_less = bool(group["lost"] or group["states"].get("pruned"))
    return is_less and len(group["seeds"]) < len(group["runs"])


def _p(beside: Mapping[str, Any] | None) -> str:
    if beside is None or beside["p"] is None:
        return NOTHING
    return f"{beside['p']:.3f}" + ("" if beside["differs"] else " noise")


def _without_empty(rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the rows without the columns that no group has."""
    kept = [at for at in range(len(rows[0])) if any(row[at] for row in rows[1:])]
    return [tuple(row[at] for at in kept) for row in rows]


def _markdown(rows: list[tuple[str, ...]]) -> str:
    lines = [" | ".join(row) for row in rows]
    lines.insert(1, " | ".join(["---"] * len(rows[0])))
    return "\n".join(f"| {line} |" for line in lines)


def _definitions(result: Mapping[str, Any]) -> Iterator[str]:
    groups = result["groups"]
    if result["horizon"]:
        yield (
            f"final: mean return of the evaluation at {result['horizon']:,.0f} frames; mean over "
            "seeds; 95 %: Student's t, from three seeds on."
        )
    if result["score"] is not None:
        yield (
            "frames to a score: median of the Kaplan-Meier curve over seeds; a seed that did not "
            "reach it counts as longer than it was trained, a lost one as never."
        )
    if any(group["lost"] for group in groups):
        yield "lost: failed or diverged; such a setting ranks last, and *: a mean of the others."
    if any(group["states"].get("pruned") for group in groups):
        yield (
            "pruned: ended at a rung of successive halving, where other settings were better; "
            "*: a mean of the others."
        )
    if len(groups) > 1:
        yield (
            "best is better: probability that a seed of the first setting beats one of this "
            "(Agarwal et al. 2021); p: of equal settings, by Welch's test of finals or the "
            "log-rank permutation test of frames, corrected by Holm."
        )
