"""Runs compared: which setting is better, by how much, and whether that is more than noise.

The unit is the run of one seed. A group has the runs that differ in the seed alone. Groups are
ranked by the frames to a score where runs end at one, and by their final evaluations elsewhere.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from seedbed.runtime.text import counted
from seedbed.sets.groups import Group, differing_settings, group_runs, setting_words
from seedbed.sets.records import Record
from seedbed.sets.scores import Horizon, area, best_checkpoint, common_horizon, final
from seedbed.sets.states import LOST
from seedbed.sets.statistics import (
    difference_p,
    expected_best,
    holm,
    improvement,
    median_time,
    summary,
    times_p,
)

LEVEL = 0.05
# Of pruned runs there are evaluations until their rung (--at).
_ENDED = ("finished", "pruned")
_ENVIRONMENT = "environment.id"
# What a group has of each measure, and where its runs have theirs.
_MEASURES = {
    "final": "finals",
    "area": "areas",
    "best_checkpoint": "best_checkpoints",
    "to_score": "times",
}
# Of a run: its seed, its settings within the group, and how many such runs are before it.
_Unit = tuple[int, str, int]


def compare(
    records: Sequence[Record],
    by: Sequence[str] = (),
    score: float | None = None,
    at: float | None = None,
) -> dict[str, Any]:
    """Return the comparison of runs as plain data.

    Runs that confirm what others have chosen are compared apart, and the claim is of them alone.

    Args:
        records: The runs.
        by: Keys of the groups; empty takes all that differ.
        score: Mean return of an evaluation to which frames are counted; None takes that at which
            the runs end, if they do.
        at: Emulator frames of the final evaluations; None takes the last that all have.

    Raises:
        SeedbedError: USAGE, the runs have one setting and no group, or `by` differs nowhere.
        ImportError: SciPy is not installed.
    """
    search = [record for record in records if not record.confirms] or records
    result = _compare(search, by, score, at)
    fresh = [record for record in records if record.confirms]
    result["confirmation"] = None
    if fresh and len(fresh) < len(records):
        differing = differing_settings(fresh)
        found = _compare(fresh, [key for key in by if key in differing], score, at)
        result["confirmation"] = found
        if found["groups"][0][found["ranked_by"]] is not None:
            result["sentence"] = f"On seeds that did not choose it: {found['sentence']}"
            return result
    best, *others = result["groups"]
    is_chosen = any("worse_than_best" in row or "pruned" in row["states"] for row in others)
    if best[result["ranked_by"]] is not None and is_chosen:
        count = len(result["groups"])
        result["sentence"] += f" Not confirmed: it is the best of {count}, on its own seeds."
    return result


def _compare(
    records: Sequence[Record], by: Sequence[str], score: float | None, at: float | None
) -> dict[str, Any]:
    found = group_runs(records, by)
    notes = list(found.notes)
    target = score if score is not None else _common_target(records)
    horizon = common_horizon(records, at)
    # After all others: a run that was lost never reaches the score.
    never = max(record.env_frames for record in records) + 1
    rows = [
        _row(group, found.searched, target, score is not None, horizon, never)
        for group in found.groups
    ]
    notes += horizon.refusals
    _balance(rows, notes)
    _best_of(rows, notes)
    ranked_by = "to_score" if target is not None else "final"
    to_go = sum(record.state not in (*_ENDED, *LOST) for record in records)
    rows.sort(key=lambda row: _rank(row, ranked_by))
    if _ENVIRONMENT in found.settings:
        sentence = (
            "Returns of different environments do not compare: name runs of one of them; "
            "`seedbed suite table` has human-normalised scores of Atari."
        )
    else:
        _pairs(rows, ranked_by)
        sentence = _sentence(rows, ranked_by, target)
        if to_go:
            sentence += f" Of {counted(len(records), 'run')} {to_go} are not at their ends."
    return {
        "runs": len(records),
        "differs": {"settings": dict(found.settings), "setup": dict(found.setup)},
        "score": target,
        "horizon": horizon.env_frames,
        "areas_from": horizon.begin,
        "ranked_by": ranked_by,
        "groups": rows,
        "notes": notes,
        "sentence": sentence,
    }


def _common_target(records: Sequence[Record]) -> float | None:
    """Return the score at which runs end; None where none has ended at one, or at several."""
    if not any(record.stop_reason.startswith("stop.mean_return") for record in records):
        return None
    targets = {record.settings["stop.mean_return"] for record in records}
    return float(targets.pop()) if len(targets) == 1 and None not in targets else None


def _row(
    group: Group,
    searched: Sequence[str],
    target: float | None,
    by_evaluations: bool,
    horizon: Horizon,
    never: float,
) -> dict[str, Any]:
    states = Counter(record.state for record in group.records)
    units = _units(group.records, searched)
    row: dict[str, Any] = {
        "label": group.label,
        "values": dict(group.values),
        "runs": [record.name for record in group.records],
        "states": dict(states),
        "lost": sum(states[state] for state in LOST),
        "env_frames": sum(record.env_frames for record in group.records),
        "seconds": sum(record.seconds for record in group.records),
        "dollars": sum(record.dollars for record in group.records),
        **{of: {} for of in _MEASURES.values()},
        **dict.fromkeys(_MEASURES),
        "best_of": None,
    }
    if (at := horizon.env_frames) is not None:
        for unit, record in units.items():
            if record.state in _ENDED and (found := final(record, at)) is not None:
                row["finals"][unit] = found
                row["best_checkpoints"][unit] = best_checkpoint(record, at)
                if (begin := horizon.begin) is not None:
                    row["areas"][unit] = area(record, begin, at)
    if target is not None:
        row["times"] = {
            unit: (never, False) if r.state in LOST else _time_of(r, target, by_evaluations)
            for unit, r in units.items()
            if r.state in (*_ENDED, *LOST)
        }
    row["draws"] = _draws(units, row["finals"])
    return row


def _units(records: Sequence[Record], searched: Sequence[str]) -> dict[_Unit, Record]:
    """Return the runs by what they may have in common with one of another group."""
    found: dict[_Unit, Record] = {}
    times = Counter[tuple[int, str]]()
    for record in records:
        settings = setting_words({key: record.settings[key] for key in searched})
        found[record.seed, settings, times[record.seed, settings]] = record
        times[record.seed, settings] += 1
    return found


def _draws(units: Mapping[_Unit, Record], finals: Mapping[_Unit, float]) -> list[float]:
    """Return the score of each setting of a group: its mean, or the lowest of all if it lost a run.

    A setting without a run that is finished or lost is not drawn yet.
    """
    scores: dict[str, list[float]] = {}
    lost = set()
    for unit, record in units.items():
        if record.state in LOST:
            lost.add(unit[1])
        elif unit in finals:
            scores.setdefault(unit[1], []).append(finals[unit])
    means = {setting: float(np.mean(some)) for setting, some in scores.items()}
    lowest = min(means.values(), default=0.0)
    drawn = dict.fromkeys(means) | dict.fromkeys(lost)
    return [lowest if one in lost else means[one] for one in drawn] if means else []


def _best_of(rows: Sequence[dict[str, Any]], notes: list[str]) -> None:
    """Fill in the expected best setting of each group, of as many draws as the smallest has."""
    counts = [len(row["draws"]) for row in rows if row["draws"]]
    if max(counts, default=1) == 1:
        return
    draws = min(counts)
    for row in rows:
        if row["draws"]:
            best = expected_best(row["draws"], draws)
            row["best_of"] = {"draws": draws, "of": len(row["draws"]), "score": best}
    if max(counts) > draws:
        notes.append(
            f"groups have {', '.join(map(str, counts))} settings, and the best of more is luckier: "
            f"their bests are compared at {counted(draws, 'draw')} of each"
        )


def _time_of(record: Record, target: float, by_evaluations: bool) -> tuple[float, bool]:
    """Return the frames to a score and true, or those until which it was not reached, and false."""
    if by_evaluations:
        reached = [one.env_frames for one in record.evaluations if one.mean >= target]
        return (reached[0], True) if reached else (record.env_frames, False)
    return record.env_frames, record.stop_reason.startswith("stop.mean_return")


def _balance(rows: Sequence[dict[str, Any]], notes: list[str]) -> None:
    """Fill in the statistics, over the seeds that all groups have where these differ."""
    for name, of in _MEASURES.items():
        sets = [set(row[of]) for row in rows if row[of]]
        common = set.intersection(*sets) if sets else set()
        # What is said of finals holds for areas and best checkpoints, too.
        if any(one != common for one in sets) and common and name in ("final", "to_score"):
            notes.append(f"{name.replace('_', ' ')}: over {_in_common(common)}")
        for row in rows:
            kept = [row[of][unit] for unit in sorted(common or row[of]) if unit in row[of]]
            if kept:
                row[name] = _STATISTICS[name](kept)
    for row in rows:
        for of in _MEASURES.values():
            row[of] = {_unit_words(unit): value for unit, value in row[of].items()}


def _in_common(units: Collection[_Unit]) -> str:
    if any(settings for _, settings, _ in units):
        return f"the {counted(len(units), 'run')} whose settings and seeds all groups have"
    return f"the seeds that all groups have: {', '.join(str(seed) for seed, *_ in sorted(units))}"


def _unit_words(unit: _Unit) -> str:
    seed, settings, times = unit
    return ", ".join([str(seed), *filter(None, [settings]), *(f"again {times}",) * (times > 0)])


def _times(times: list[tuple[float, bool]]) -> dict[str, Any]:
    return {
        "reached": sum(reached for _, reached in times),
        "of": len(times),
        "median": median_time([time for time, _ in times], [reached for _, reached in times]),
        "times": times,
    }


def _mean(scores: list[float]) -> dict[str, Any]:
    return {"scores": scores, "mean": float(np.mean(scores))}


_STATISTICS: Mapping[str, Callable[[list[Any]], dict[str, Any]]] = {
    "final": summary,
    "area": summary,
    "best_checkpoint": _mean,
    "to_score": _times,
}


def _rank(row: Mapping[str, Any], ranked_by: str) -> tuple[float, ...]:
    """Return what the best group has least of: lost seeds first."""
    found = row[ranked_by]
    if found is None:
        return (2.0, 0.0, 0.0)
    if ranked_by == "final":
        return (float(row["lost"] > 0), -found["mean"], 0.0)
    median = found["median"] if found["median"] is not None else math.inf
    return (float(row["lost"] > 0), median, -found["reached"] / found["of"])


def _pairs(rows: Sequence[dict[str, Any]], ranked_by: str) -> None:
    """Add to each group how it differs from the best one, corrected for their number."""
    best = rows[0][ranked_by]
    others = [row for row in rows[1:] if row[ranked_by] is not None and best is not None]
    found = []
    for row in others:
        one, other = best, row[ranked_by]
        if ranked_by == "final":
            p = difference_p(one["scores"], other["scores"])
            row["worse_than_best"] = {"probability": improvement(one["scores"], other["scores"])}
        else:
            p = times_p(one["times"], other["times"])
            first, second = ([-time for time, _ in each["times"]] for each in (one, other))
            row["worse_than_best"] = {"probability": improvement(first, second)}
        found.append(p)
    known = [p for p in found if p is not None]
    corrected = iter(holm(known))
    for row, p in zip(others, found, strict=True):
        value = next(corrected) if p is not None else None
        row["worse_than_best"] |= {
            "p": value, "differs": None if value is None else value < LEVEL,
        }  # fmt: skip


def _sentence(rows: Sequence[Mapping[str, Any]], ranked_by: str, target: float | None) -> str:
    """Return what the comparison tells, in one sentence."""
    best = rows[0]
    if best[ranked_by] is None:
        return "Nothing can be compared yet."
    if ranked_by == "final":
        found = best["final"]
        interval = found["interval"]
        runs = counted(len(found["scores"]), "run" if best["best_of"] else "seed")
        text = f"{best['label']} has the best mean return, {found['mean']:.4g}"
        if interval is not None:
            text += f" (95 % interval {interval[0]:.4g} to {interval[1]:.4g}, "
            text += f"{runs})"
        else:
            text += f", of {runs}"
    else:
        found = best["to_score"]
        text = f"{best['label']} reaches a mean return of {target:g} "
        if found["median"] is None:
            text += f"in {found['reached']} of {found['of']} seeds"
        else:
            text += f"in {found['median']:,.0f} frames (median of {counted(found['of'], 'seed')}"
            text += f", {found['reached']} of them)" if found["reached"] < found["of"] else ")"
    if len(rows) == 1:
        return f"{text}."
    verdicts = [row["worse_than_best"]["differs"] for row in rows[1:] if "worse_than_best" in row]
    if not verdicts and all({"pruned", *LOST} & row["states"].keys() for row in rows[1:]):
        text += "; every other one was pruned or lost before"
    elif any(verdict is None for verdict in verdicts) or not verdicts:
        text += "; fewer than three seeds of a setting cannot tell noise from a difference"
    elif not any(verdicts):
        text += "; the differences from the others are within the noise"
    elif all(verdicts):
        text += "; every other one is worse beyond the noise (p < 0.05, Holm)"
    else:
        same = [row["label"] for row in rows[1:] if not row["worse_than_best"]["differs"]]
        text += f"; within the noise of it: {'; '.join(same)}"
    return f"{text}."
