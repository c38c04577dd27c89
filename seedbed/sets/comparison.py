"""Runs compared: which setting is better, by how much, and whether that is more than noise.

The unit is the run of one seed. A group has the runs that differ in the seed alone. Groups are
ranked by the frames to a score where runs end at one, and by their final evaluations elsewhere.
Games with scores of a human and of random play compare by these, and are strata.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.text import counted
from seedbed.sets.groups import Group, differing_settings, group_runs
from seedbed.sets.records import Record
from seedbed.sets.scores import (
    Horizon,
    area,
    best_checkpoint,
    common_horizon,
    due_frames,
    final,
)
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
from seedbed.sets.units import Unit, by_game, common_places, draws, in_common, place_of, units

LEVEL = 0.05
# Of pruned runs there are evaluations until their rung (--at).
_ENDED = ("finished", "pruned")
_ENVIRONMENT = "environment.id"
# What a group has of each measure, and where its runs have theirs.
_MEASURES = {
    "final": "finals",
    "area": "areas",
    "best_checkpoint": "best_checkpoints",
    "human_normalised": "human_normalised_finals",
    "to_score": "times",
}


class _Reach(NamedTuple):
    """When a run reached a score, or until when it was trained without it.

    Seconds and dollars are None where they were not measured.
    """

    env_frames: float
    seconds: float | None
    dollars: float | None
    reached: bool


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
        SeedbedError: USAGE, `by` differs nowhere, or a run has no evaluation at `at`.
        ImportError: SciPy is not installed.
    """
    search = [record for record in records if not record.confirms] or records
    result = _compare(search, by, score, at)
    if at is not None and result["horizon"] is None:
        raise SeedbedError(ExitCode.USAGE, f"--at {at:g}: {'; '.join(result['refusals'])}")
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
    is_chosen = best["to_score"] is None or best["to_score"]["reached"] > 0
    is_chosen &= any("worse_than_best" in row or "pruned" in row["states"] for row in others)
    if best[result["ranked_by"]] is not None and is_chosen:
        count = len(result["groups"])
        result["sentence"] += f" Not confirmed: it is the best of {count}, on its own seeds."
    return result


def _compare(
    records: Sequence[Record], by: Sequence[str], score: float | None, at: float | None
) -> dict[str, Any]:
    strata: tuple[str, ...] = ()
    scaled = [record.human_normalised() for record in records]
    environments = {record.settings[_ENVIRONMENT] for record in records}
    is_human = len(environments) > 1 and all(
        one is not None and (one.evaluations or one.state not in _ENDED) for one in scaled
    )
    if is_human:
        records = [one for one in scaled if one is not None]
        strata = () if _ENVIRONMENT in by else (_ENVIRONMENT,)
    found = group_runs(records, by, strata)
    notes = list(found.notes)
    target = score if score is not None else _common_target(records)
    if strata:
        target = None
        notes.append("games are strata: a seed's score is its mean over them")
        if score is not None:
            notes.append("a score is reached in one game: name runs of one for frames to it")
    horizon, refusals = common_horizon(records, at)
    never = _never(records)
    places = [units(group.records, found.searched, strata) for group in found.groups]
    rows = [
        {"index": index, **_row(group, some, target, score is not None, horizon, never)}
        for index, (group, some) in enumerate(zip(found.groups, places, strict=True))
    ]
    if again := [one for some in places for unit, one in some.items() if unit.times]:
        notes.append(
            f"{counted(len(again), 'run')} with the settings and the seed of another one, such as "
            f"{again[0].path}: each counts"
        )
    if score is not None and all(len(record.evaluations) < 2 for record in records):
        notes.append(
            "each run was evaluated once: frames to a score tell that it was reached, and not when "
            "(evaluation.every_frames)"
        )
    notes += refusals
    _balance(rows, notes)
    _best_of(rows, notes)
    ranked_by = "to_score" if target is not None else "final"
    to_go = sum(record.state not in (*_ENDED, *LOST) for record in records)
    rows.sort(key=lambda row: _rank(row, ranked_by))
    scale = "human-normalised score" if is_human else "mean return"
    if len(environments) > 1 and not is_human:
        sentence = (
            "Returns of different environments do not compare, and these have no human-normalised "
            "scores: name runs of one of them."
        )
    else:
        _pairs(rows, ranked_by)
        sentence = _sentence(rows, ranked_by, target, scale)
        if to_go:
            sentence += f" Of {counted(len(records), 'run')} {to_go} are not at their ends."
    return {
        "runs": len(records),
        "differs": {"settings": dict(found.settings), "setup": dict(found.setup)},
        "scale": scale,
        "score": target,
        "horizon": horizon.env_frames if horizon is not None else None,
        "areas_from": horizon.begin if horizon is not None else None,
        "refusals": refusals,
        "ranked_by": ranked_by,
        "groups": rows,
        "notes": notes,
        "sentence": sentence,
    }


def _never(records: Sequence[Record]) -> _Reach:
    """Return a reach after all others: a run that was lost never reaches the score."""
    return _Reach(
        max(record.env_frames for record in records) + 1,
        max(record.seconds for record in records) + 1,
        max(record.dollars for record in records) + 1,
        reached=False,
    )


def _common_target(records: Sequence[Record]) -> float | None:
    """Return the score at which runs end; None where none has ended at one, or at several."""
    if not any(record.stop_reason.startswith("stop.mean_return") for record in records):
        return None
    targets = {record.settings["stop.mean_return"] for record in records}
    return float(targets.pop()) if len(targets) == 1 and None not in targets else None


def _row(
    group: Group,
    found: Mapping[Unit, Record],
    target: float | None,
    by_evaluations: bool,
    horizon: Horizon | None,
    never: _Reach,
) -> dict[str, Any]:
    states = Counter(record.state for record in group.records)
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
    if horizon is not None:
        for unit, record in found.items():
            if record.state in _ENDED and (score := final(record, horizon)) is not None:
                row["finals"][unit] = score
                row["best_checkpoints"][unit] = best_checkpoint(record, horizon)
                if horizon.begin is not None:
                    row["areas"][unit] = area(record, horizon.begin, horizon.env_frames)
                if (scaled := record.human_normalised()) is not None:
                    row["human_normalised_finals"][unit] = final(scaled, horizon)
    if target is not None:
        row["times"] = {
            unit: never if r.state in LOST else _reach(r, target, by_evaluations)
            for unit, r in found.items()
            # One that lacks its last evaluation alone has told how many frames it took.
            if r.state in (*_ENDED, *LOST) or (r.stop_reason and not by_evaluations)
        }
    row["draws"] = draws(found, row["finals"])
    return row


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


def _reach(record: Record, target: float, by_evaluations: bool) -> _Reach:
    whole = _Reach(record.env_frames, record.seconds, record.dollars, reached=False)
    if not by_evaluations:
        return whole._replace(reached=record.stop_reason.startswith("stop.mean_return"))
    for one in record.evaluations:
        if one.mean >= target:
            # A run has one price.
            dollars = one.seconds and record.dollars * one.seconds / record.seconds
            return _Reach(due_frames(record, one), one.seconds, dollars, reached=True)
    return whole


def _balance(rows: Sequence[dict[str, Any]], notes: list[str]) -> None:
    """Fill in the statistics, over the seeds that all groups have where these differ."""
    for name, of in _MEASURES.items():
        # A setting that has lost a seed ranks last, and takes no seed from the others.
        scored = [row for row in rows if row[of]]
        whole = [row for row in scored if not row["lost"]] or scored
        sets = [set(map(place_of, row[of])) for row in whole]
        common = common_places(sets)
        # What is said of finals holds for areas and best checkpoints, too.
        if any(one != common for one in sets) and name in ("final", "to_score"):
            if common:
                notes.append(f"{name.replace('_', ' ')}: over {in_common(common)}")
            elif any(unit.game for one in sets for unit in one):
                notes.append(f"{name.replace('_', ' ')}: no seed has a run of every game")
            else:
                notes.append(
                    f"{name.replace('_', ' ')}: no seed is in all groups: each has its own"
                )
        for row in rows:
            takes_all = not common or row not in whole
            kept = {
                unit: one for unit, one in row[of].items() if takes_all or place_of(unit) in common
            }
            games = {unit.game for unit in kept}
            kept = {  # every game of a run that a seed has again, too
                unit: one for unit, one in kept.items()
                if all(unit._replace(game=game) in kept for game in games)
            }  # fmt: skip
            if kept and (common or not any(unit.game for unit in kept)):
                row[name] = _STATISTICS[name](kept)
    for row in rows:
        for of in _MEASURES.values():
            row[of] = {str(unit): row[of][unit] for unit in sorted(row[of])}


def _times(found: Mapping[Unit, _Reach]) -> dict[str, Any]:
    reaches = [found[unit] for unit in sorted(found)]
    return {
        "reached": sum(one.reached for one in reaches),
        "of": len(reaches),
        "median": _median(reaches, "env_frames"),
        "median_seconds": _median(reaches, "seconds"),
        "median_dollars": _median(reaches, "dollars"),
        "times": [(one.env_frames, one.reached) for one in reaches],
    }


def _median(reaches: Sequence[_Reach], axis: str) -> float | None:
    """Return the median along an axis; None where half do not reach it, or one is not measured."""
    found = [getattr(one, axis) for one in reaches]
    return None if None in found else median_time(found, [one.reached for one in reaches])


def _mean(found: Mapping[Unit, float]) -> dict[str, Any]:
    scores = [found[unit] for unit in sorted(found)]
    return {"scores": scores, "mean": float(np.mean(scores))}


def _summary(found: Mapping[Unit, float]) -> dict[str, Any]:
    return summary(by_game(found))


_STATISTICS: Mapping[str, Callable[[Mapping[Unit, Any]], dict[str, Any]]] = {
    "final": _summary,
    "area": _summary,
    "best_checkpoint": _mean,
    "human_normalised": _mean,
    "to_score": _times,
}


def _rank(row: Mapping[str, Any], ranked_by: str) -> tuple[float, ...]:
    """Return what the best group has least of: lost seeds first."""
    found = row[ranked_by]
    if found is None:
        return (2.0,)
    if ranked_by == "final":
        return (float(row["lost"] > 0), -found["mean"])
    median = found["median"] if found["median"] is not None else math.inf
    mean = row["final"]["mean"] if row["final"] is not None else 0.0
    return (float(row["lost"] > 0), median, -found["reached"] / found["of"], -mean)


def _pairs(rows: Sequence[dict[str, Any]], ranked_by: str) -> None:
    """Add to each group how it differs from the best one, corrected for their number."""
    best = rows[0][ranked_by]
    others = [row for row in rows[1:] if row[ranked_by] is not None and best is not None]
    found = []
    for row in others:
        one, other = best, row[ranked_by]
        if ranked_by == "final":
            p = difference_p(one["scores"], other["scores"])
            row["worse_than_best"] = {"probability": _improvement(one, other)}
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


def _improvement(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Return the probability that a seed of one group beats one of the other, mean over games."""
    games, others = (each["games"] or {"": each["scores"]} for each in (one, other))
    return float(np.mean([improvement(games[game], others[game]) for game in games]))


def _sentence(
    rows: Sequence[Mapping[str, Any]], ranked_by: str, target: float | None, scale: str
) -> str:
    """Return what the comparison tells, in one sentence."""
    best = rows[0]
    if best[ranked_by] is None:
        return "Nothing can be compared yet."
    if ranked_by == "final":
        found = best["final"]
        interval = found["interval"]
        runs = counted(len(found["scores"]), "run" if best["best_of"] else "seed")
        verb = f"has the best {scale}," if len(rows) > 1 else f"has a {scale} of"
        text = f"{best['label']} {verb} {found['mean']:.4g}"
        if interval is not None:
            text += f" (95 % interval {interval[0]:.4g} to {interval[1]:.4g}, "
            text += f"{runs})"
        else:
            text += f", of {runs}"
    elif not any(row["to_score"] and row["to_score"]["reached"] for row in rows):
        return f"No run has reached a mean return of {target:g}."
    else:
        found = best["to_score"]
        text = f"{best['label']} reaches a mean return of {target:g} "
        if found["median"] is None:
            text += f"in {found['reached']} of {found['of']} seeds"
        else:
            text += f"in {found['median']:,.0f} frames (median of {counted(found['of'], 'seed')}"
            text += f", {found['reached']} of them)" if found["reached"] < found["of"] else ")"
    if len(rows) == 1:
        lost = f"; {best['lost']} of {counted(len(best['runs']), 'run')} lost" * bool(best["lost"])
        return f"{text}{lost}."
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
