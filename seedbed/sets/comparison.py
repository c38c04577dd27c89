"""Runs compared: which setting is better, by how much, and whether that is more than noise.

The unit is the run of one seed. A group has the runs that differ in the seed alone. Groups are
ranked by the frames to a score where runs end at one, and by their final evaluations elsewhere.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seedbed.config.explain import settings_named
from seedbed.config.keys import Key, keys
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.text import counted
from seedbed.sets.identity import as_json
from seedbed.sets.names import key_word
from seedbed.sets.records import Record
from seedbed.sets.resolve import describe
from seedbed.sets.statistics import (
    difference_p,
    holm,
    improvement,
    mean_interval,
    median_time,
    times_p,
)
from seedbed.settings import FREE

LEVEL = 0.05
# By which the frames of final evaluations may differ from the horizon.
_NEAR = 0.02
_LOST = ("failed", "diverged")
# Of pruned runs there are evaluations until their rung (--at).
_ENDED = ("finished", "pruned")
# What changes a score and not the training.
_PROTOCOL = ("evaluation.episodes", "evaluation.policy")
_NEVER = ("name", "seed")
_ENVIRONMENT = "environment.id"


@dataclass(frozen=True)
class Group:
    """Runs of one setting.

    Attributes:
        values: What tells the group from the others, by key.
        records: Its runs, by seed.
    """

    values: Mapping[str, Any]
    records: Sequence[Record]

    @property
    def label(self) -> str:
        """The values in words."""
        return describe({key_word(key): value for key, value in self.values.items()})


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
        differing = _differing(fresh)
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
    differing = _differing(records)
    setup = _differing_setup(records)
    _check_by(by, differing)
    grouping = list(by) or [key for key, free in differing.items() if not free]
    groups = _groups(records, grouping, () if by else setup)
    notes = list(_notes(differing, setup, grouping, by))
    target = score if score is not None else _common_target(records)
    horizon, refusal = _horizon(records, at)
    # After all others: a run that was lost never reaches the score.
    never = max(record.env_frames for record in records) + 1
    rows = [_row(group, target, score is not None, horizon, never) for group in groups]
    if refusal:
        notes.append(refusal)
    _balance(rows, notes)
    ranked_by = "to_score" if target is not None else "final"
    rows.sort(key=lambda row: _rank(row, ranked_by))
    if _ENVIRONMENT in grouping:
        sentence = (
            "Returns of different environments do not compare: name runs of one of them; "
            "`seedbed suite table` has human-normalised scores of Atari."
        )
    else:
        _pairs(rows, ranked_by)
        sentence = _sentence(rows, ranked_by, target)
    return {
        "runs": len(records),
        "differs": {
            "settings": {key: _values(records, key) for key in differing},
            "setup": {name: sorted({r.setup.get(name, "") for r in records}) for name in setup},
        },
        "score": target,
        "horizon": horizon,
        "ranked_by": ranked_by,
        "groups": rows,
        "notes": notes,
        "sentence": sentence,
    }


def differing_settings(records: Sequence[Record]) -> list[str]:
    """Return the keys of the settings that differ between runs, in the order of the reference."""
    return list(_differing(records))


def keys_named(words: Iterable[str]) -> list[str]:
    """Return keys by their paths or their last parts, such as `learning_rate`.

    Raises:
        SeedbedError: USAGE, a word names no key, or several.
    """
    known = {key.path for key in keys()}
    found = []
    for word in words:
        named = [word] if word in known else settings_named(word)
        if len(named) != 1:
            meant = f": did you mean {' or '.join(named)}?" if named else ""
            raise SeedbedError(ExitCode.USAGE, f"--by {word}: no such key{meant}")
        found += named
    return found


def _differing(records: Sequence[Record]) -> dict[str, bool]:
    """Return the keys that differ, and whether they change nothing that is measured."""
    return {
        key.path: _is_free(key)
        for key in keys()
        if key.path not in _NEVER
        and not key.path.startswith(("logging.", "cost."))
        and len({as_json(record.settings[key.path]) for record in records}) > 1
    }


def _is_free(key: Key) -> bool:
    return key.key_class is FREE and key.path not in _PROTOCOL


def _differing_setup(records: Sequence[Record]) -> list[str]:
    names = dict.fromkeys(name for record in records for name in record.setup)
    return [name for name in names if len({record.setup.get(name) for record in records}) > 1]


def _values(records: Iterable[Record], key: str) -> list[Any]:
    found = {as_json(record.settings[key]): record.settings[key] for record in records}
    return list(found.values())


def _check_by(by: Sequence[str], differing: Mapping[str, bool]) -> None:
    for key in by:
        if key not in differing:
            some = f"; these do: {', '.join(differing)}" if differing else ""
            raise SeedbedError(ExitCode.USAGE, f"--by {key}: no two runs differ in it{some}")


def _groups(
    records: Sequence[Record], grouping: Sequence[str], setup: Sequence[str]
) -> list[Group]:
    found: dict[str, tuple[dict[str, Any], list[Record]]] = {}
    for record in records:
        values = {key: record.settings[key] for key in grouping}
        values |= {name: record.setup.get(name, "") for name in setup}
        found.setdefault(as_json(values), (values, []))[1].append(record)
    return [
        Group(values, sorted(some, key=lambda one: (one.seed, one.name)))
        for values, some in found.values()
    ]


def _notes(
    differing: Mapping[str, bool], setup: Sequence[str], grouping: Sequence[str], by: Sequence[str]
) -> Iterable[str]:
    pooled = [*(key for key in differing if key not in grouping), *(setup if by else ())]
    if pooled and by:
        yield f"pooled, though they differ: {', '.join(pooled)}"
    elif pooled:
        yield f"differ too, and change nothing that is learned: {', '.join(pooled)}"
    if setup and not by:
        yield f"runs of another {' or '.join(setup)} are groups of their own; --by KEY pools them"


def _common_target(records: Sequence[Record]) -> float | None:
    """Return the score at which runs end; None where none has ended at one, or at several."""
    if not any(record.stop_reason.startswith("stop.mean_return") for record in records):
        return None
    targets = {record.settings["stop.mean_return"] for record in records}
    return float(targets.pop()) if len(targets) == 1 and None not in targets else None


def _horizon(records: Sequence[Record], at: float | None) -> tuple[float | None, str]:
    """Return the frames at which finals are compared, and why there are none."""
    finished = [r for r in records if r.state == "finished"]
    if not finished:
        return None, "no run is finished: there are no finals"
    early = [r for r in finished if r.stop_reason.startswith("stop.mean_return")]
    if at is None and early:
        return None, (
            f"{len(early)} of {counted(len(finished), 'finished run')} ended at a score: finals of "
            "runs of different lengths say nothing, so there are none (--at FRAMES takes "
            "evaluations of that time)"
        )
    last = [r.evaluations[-1].env_frames if r.evaluations else math.nan for r in finished]
    if at is None and any(map(math.isnan, last)):
        missing = finished[next(i for i, one in enumerate(last) if math.isnan(one))]
        return None, f"{missing.name} was never evaluated: there are no finals"
    horizon = at if at is not None else min(last)
    for record in finished:
        if _final_of(record, horizon) is None:
            return None, (
                f"{record.name} has no evaluation at {horizon:,.0f} frames, where others have one: "
                "there are no finals (--at FRAMES takes another time)"
            )
    return horizon, ""


def _final_of(record: Record, horizon: float) -> float | None:
    """Return the mean of the evaluation nearest to the horizon; None without one near it."""
    near = [
        (abs(one.env_frames - horizon), one.mean)
        for one in record.evaluations
        if abs(one.env_frames - horizon) <= _NEAR * horizon
    ]
    return min(near)[1] if near else None


def _row(
    group: Group,
    target: float | None,
    by_evaluations: bool,
    horizon: float | None,
    never: float,
) -> dict[str, Any]:
    states = Counter(record.state for record in group.records)
    lost = sum(states[state] for state in _LOST)
    row: dict[str, Any] = {
        "label": group.label,
        "values": dict(group.values),
        "runs": [record.name for record in group.records],
        "states": dict(states),
        "lost": lost,
        "env_frames": sum(record.env_frames for record in group.records),
        "seconds": sum(record.seconds for record in group.records),
        "dollars": sum(record.dollars for record in group.records),
        "seeds": {},
        "times": {},
        "final": None,
        "to_score": None,
    }
    ended = [record for record in group.records if record.state in _ENDED]
    if horizon is not None:
        finals = {r.seed: _final_of(r, horizon) for r in ended}
        row["seeds"] = {seed: mean for seed, mean in finals.items() if mean is not None}
    if target is not None:
        watched = [r for r in group.records if r.state in (*_ENDED, *_LOST)]
        row["times"] = {
            r.seed: (never, False) if r.state in _LOST else _time_of(r, target, by_evaluations)
            for r in watched
        }
    return row


def _time_of(record: Record, target: float, by_evaluations: bool) -> tuple[float, bool]:
    """Return the frames to a score and true, or those until which it was not reached, and false."""
    if by_evaluations:
        reached = [one.env_frames for one in record.evaluations if one.mean >= target]
        return (reached[0], True) if reached else (record.env_frames, False)
    return record.env_frames, record.stop_reason.startswith("stop.mean_return")


def _balance(rows: Sequence[dict[str, Any]], notes: list[str]) -> None:
    """Fill in the statistics, over the seeds that all groups have where these differ."""
    for of, name in (("seeds", "final"), ("times", "to_score")):
        sets = [set(row[of]) for row in rows if row[of]]
        common = set.intersection(*sets) if sets else set()
        if any(one != common for one in sets) and common:
            words = ", ".join(map(str, sorted(common)))
            notes.append(f"{name.replace('_', ' ')}: over the seeds that all groups have: {words}")
        for row in rows:
            kept = [row[of][seed] for seed in sorted(common or row[of]) if seed in row[of]]
            if kept:
                row[name] = _finals(kept) if name == "final" else _times(kept)
    for row in rows:
        row["seeds"] = {str(seed): value for seed, value in row["seeds"].items()}
        row["times"] = {str(seed): list(value) for seed, value in row["times"].items()}


def _finals(scores: list[float]) -> dict[str, Any]:
    interval = mean_interval(scores)
    return {
        "scores": scores,
        "mean": float(np.mean(scores)),
        "interval": list(interval) if interval is not None else None,
        "median": float(np.median(scores)),
        "best_3": float(np.mean(sorted(scores)[-3:])) if len(scores) >= 3 else None,
    }


def _times(times: list[tuple[float, bool]]) -> dict[str, Any]:
    return {
        "reached": sum(reached for _, reached in times),
        "of": len(times),
        "median": median_time([time for time, _ in times], [reached for _, reached in times]),
        "times": times,
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
        text = f"{best['label']} has the best mean return, {found['mean']:.4g}"
        if interval is not None:
            text += f" (95 % interval {interval[0]:.4g} to {interval[1]:.4g}, "
            text += f"{counted(len(found['scores']), 'seed')})"
        else:
            text += f", of {counted(len(found['scores']), 'seed')}"
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
    if not verdicts and all({"pruned", *_LOST} & row["states"].keys() for row in rows[1:]):
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
