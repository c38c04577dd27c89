"""A comparison of runs as a table, for the terminal or in Markdown."""

from collections.abc import Callable, Iterator, Mapping
from itertools import repeat
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
from seedbed.runtime.text import counted
from seedbed.sets.resolve import describe_some
from seedbed.sets.statistics import LEAST_RESAMPLED

_MOST_VALUES = 8
# Labels of settings that are longer stand above the table, numbered.
_LONGEST_LABEL = 48
_COUNTED = ("failed", "diverged", "pruned", "stopped")
_ENDED = ("finished", *_COUNTED)


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
    groups = result["groups"]
    labels = [group["label"] for group in groups]
    blocks = []
    if max(map(len, labels)) > _LONGEST_LABEL:
        numbers = [f"({number})" for number in range(1, len(groups) + 1)]
        lines = columns(list(zip(numbers, labels, strict=True)), "><").splitlines()
        blocks.append("\n".join(f"  {line}  " if markdown else f"  {line}" for line in lines))
        labels = numbers
    table = [_head(result), *map(_cells, labels, groups, repeat(result))]
    more = [_more_head(result), *map(_more_cells, labels, groups)]
    for rows in map(_without_empty, [table, more]):
        if len(rows[0]) == 1:  # nothing but the names of the settings
            continue
        align = "<" + ">" * (len(rows[0]) - 1)
        blocks.append(_markdown(rows) if markdown else columns(rows, align))
    return "\n\n".join(blocks)


def _differences(result: Mapping[str, Any]) -> Iterator[str]:
    differs = result["differs"]
    found = {**differs["settings"], **differs["setup"]}
    if not found:
        several = "; they differ in the seed alone" if result["runs"] > 1 else ""
        yield f"{counted(result['runs'], 'run')}{several}"
        return
    lines = [f"  {key}: {describe_some(values, _MOST_VALUES)}" for key, values in found.items()]
    yield "\n".join([f"{result['runs']} runs; they differ in", *lines])


def _head(result: Mapping[str, Any]) -> tuple[str, ...]:
    at = f" at {si_number(result['horizon'])}" if result["horizon"] else ""
    to = f"frames to {result['score']:g}" if result["score"] is not None else ""
    runs = "runs" if _best_of_head(result) else "seeds"
    return (
        *("setting", runs, *_COUNTED, "to go", "reached", to, f"final{at}", "95 %"),
        *(
            "best checkpoint",
            _best_of_head(result),
            "frames",
            "time",
            "cost",
            "best is better",
            "p",
        ),
    )


def _best_of_head(result: Mapping[str, Any]) -> str:
    draws = [group["best_of"]["draws"] for group in result["groups"] if group["best_of"]]
    return f"best of {draws[0]}" if draws else ""


def _cells(label: str, group: Mapping[str, Any], result: Mapping[str, Any]) -> tuple[str, ...]:
    final, times, beside = group["final"], group["to_score"], group.get("worse_than_best")
    checkpoint, best_of = group["best_checkpoint"], group["best_of"]
    several = len(result["groups"]) > 1
    seeds = len(group["runs"])
    finished = group["states"].get("finished", 0)
    return (
        label,
        str(seeds) if finished == seeds else f"{finished} of {seeds}",
        *(str(group["states"].get(state, "")) for state in _COUNTED),
        str(sum(count for state, count in group["states"].items() if state not in _ENDED) or ""),
        f"{times['reached']} of {times['of']}" if times else "",
        _time(times, si_number, "median"),
        f"{significant(final['mean'])}{'*' * _is_partial(group)}" if final else "",
        _interval(final, "interval"),
        significant(checkpoint["mean"]) if checkpoint else "",
        significant(best_of["score"]) if best_of else "",
        si_number(group["env_frames"]),
        duration(group["seconds"]),
        money(group["dollars"]),
        # Of one seed each it would be 100 % or 0.
        percent(beside["probability"]) if beside and beside["p"] is not None else NOTHING * several,
        _p(beside) if several else "",
    )


def _more_head(result: Mapping[str, Any]) -> tuple[str, ...]:
    to = f"{result['score']:g}" if result["score"] is not None else ""
    return (
        *("setting", f"time to {to}", f"cost to {to}", "human-normalised", "median final", "IQM"),
        *("95 %", "best 3", "area", "95 %", "IQM of areas", "best 3 areas"),
    )


def _more_cells(label: str, group: Mapping[str, Any]) -> tuple[str, ...]:
    final, area, times = group["final"], group["area"], group["to_score"]
    human = group["human_normalised"]
    return (
        label,
        _time(times, duration, "median_seconds"),
        _time(times, money, "median_dollars"),
        percent(human["mean"]) if human else "",
        significant(final["median"]) if final else "",
        significant(final["iqm"]) if final else "",
        _interval(final, "iqm_interval"),
        significant(final["best_3"]) if final and final["best_3"] is not None else "",
        significant(area["mean"]) if area else "",
        _interval(area, "interval"),
        significant(area["iqm"]) if area else "",
        significant(area["best_3"]) if area and area["best_3"] is not None else "",
    )


def _time(times: Mapping[str, Any] | None, words: Callable[[float], str], name: str) -> str:
    if times is None:
        return ""
    return words(times[name]) if times[name] is not None else NOTHING


def _interval(found: Mapping[str, Any] | None, name: str) -> str:
    if not found or not found[name]:
        return ""
    low, high = found[name]
    return f"[{significant(low)}, {significant(high)}]"


def _is_partial(group: Mapping[str, Any]) -> bool:
    """Return whether a group's final leaves out seeds that were lost or pruned."""
    is_less = bool(group["lost"] or group["states"].get("pruned"))
    return is_less and len(group["finals"]) < len(group["runs"])


def _p(beside: Mapping[str, Any] | None) -> str:
    if beside is None or beside["p"] is None:
        return NOTHING
    text = f"{beside['p']:.3f}" if beside["p"] >= 0.0005 else "<0.001"
    return text + ("" if beside["differs"] else " noise")


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
    if len(groups) > 1 and groups[0][result["ranked_by"]] is not None:
        yield f"runs of {groups[0]['label']}: {describe_some(groups[0]['runs'], _MOST_VALUES)}"
    yield "frames, time, cost: sums over the runs of a setting."
    if result["horizon"]:
        yield (
            f"final: {result['scale']} of the evaluation at {result['horizon']:,.0f} frames; mean "
            "over runs; 95 %: Student's t, from three seeds on; of the IQM, the mean without the "
            f"lowest and the highest quarter, a bootstrap over seeds, from {LEAST_RESAMPLED} on."
        )
        yield (
            "best checkpoint: the highest evaluation of each seed until then, lucky as a best is; "
            "best 3: mean of the best three seeds."
        )
    if result["areas_from"]:
        yield (
            f"area: mean of the curve of evaluations from {result['areas_from']:,.0f} frames to "
            "that time, linear between them."
        )
    if best_of := _best_of_head(result):
        yield (
            f"{best_of}: expected final of the best of so many settings of a group (Dodge et al. "
            "2019); one with a lost run counts as the lowest."
        )
    if any(group["human_normalised"] for group in groups):
        yield "human-normalised: 0 is random play, 1 or 100 % a human (Mnih et al. 2015)."
    if result["score"] is not None:
        yield (
            "frames, time and cost to a score: median of the Kaplan-Meier curve over seeds; a seed "
            "that did not reach it counts as longer than it was trained, a lost one as never."
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
