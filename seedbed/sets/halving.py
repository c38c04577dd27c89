"""Successive halving: at each rung settings are ranked by all their seeds, and the best go on.

Jamieson and Talwalkar 2016 (arXiv:1502.07943). A rung is a number of emulator frames. What was
decided at a rung is in `set/halving.json`, and is never decided again.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from seedbed.runs.evaluations import read_evaluations
from seedbed.runs.layout import learner_directories
from seedbed.runtime.exit_codes import ConfigError, ExitCode, RunDirectoryError, SeedbedError
from seedbed.runtime.files import atomic_write, version_of
from seedbed.runtime.formats import money, significant
from seedbed.runtime.install import how_to_install
from seedbed.runtime.text import counted
from seedbed.sets.comparison import LEVEL
from seedbed.sets.ends import code_name, has_failed, read_ends
from seedbed.sets.folder import Member, Rung, confirming, is_set, read_members, sweep_file
from seedbed.sets.measured import Measured
from seedbed.sets.resolve import ResolvedSet, describe
from seedbed.sets.statistics import LEAST_SEEDS, difference_p, mean_interval
from seedbed.sets.stopped import is_stopped
from seedbed.sets.sweep import Halving, read_sweep

# Settings that a set must have in common, since these end runs between two rungs.
_OTHER_STOPS = ("seconds", "updates", "dollars")


class Ranked(TypedDict):
    """One setting at a rung.

    Attributes:
        setting: Its values in words.
        runs: Names of its runs.
        scores: Mean return of the evaluation of each run; empty where one is lost.
        lost: Why a run has no score, with its name; empty of a whole setting.
        mean: Mean of the scores; None where a run is lost.
        interval: The 95 % interval of the mean; None of fewer than three runs.
        goes_on: Whether the setting goes on to the next rung.
    """

    setting: str
    runs: list[str]
    scores: list[float]
    lost: list[str]
    mean: float | None
    interval: list[float] | None
    goes_on: bool


class Decision(TypedDict):
    """What was decided at a rung.

    Attributes:
        frames: Emulator frames of the rung.
        ranking: The settings, the best one first.
    """

    frames: int
    ranking: list[Ranked]


def rungs_of(halving: Halving, stop: int, settings: int) -> list[tuple[int, int]]:
    """Return the frames of each rung, and the number of settings that reach it.

    Args:
        halving: The section of the sweep.
        stop: `stop.env_frames`, the last rung.
        settings: Number of settings of the set. A single one is not ranked.
    """
    rungs, frames = [], halving.first
    while 0 < frames < stop and settings > 1:
        rungs.append((frames, settings))
        frames, settings = frames * halving.factor, math.ceil(settings / halving.factor)
    return [*rungs, (stop, settings)]


def plan_rungs(wanted: ResolvedSet, found: Measured | None) -> tuple[int, list[str]]:
    """Return the frames of all rungs of a set together, and a line for each rung.

    Args:
        wanted: A set that `check_halving` has checked.
        found: What its runs have measured, for the price of a rung; None before they have.
    """
    settings = wanted.settings
    seeds = len(wanted.runs) // settings
    total, before, lines = 0, 0, []
    stop = wanted.base.stop.env_frames
    for number, (frames, some) in enumerate(rungs_of(wanted.sweep.halving, stop, settings), 1):
        more = some * seeds * (frames - before)
        runs = f"{counted(some, 'setting')}, {counted(some * seeds, 'run')}"
        price = f", {money(more * found.dollars_per_frame)}" if found is not None else ""
        lines.append(f"  rung {number}, to {frames:,} frames: {runs}, {more:,} frames{price}")
        total, before = total + more, frames
    return total, lines


def check_halving(folder: Path, wanted: ResolvedSet) -> None:
    """Refuse rungs at which nothing can be ranked, or others than those of earlier decisions.

    Raises:
        SeedbedError: CONFIG, naming both numbers; RESUME_REFUSED; USAGE, SciPy is not installed.
    """
    halving, stop = wanted.sweep.halving, wanted.base.stop
    rungs = [frames for frames, _ in rungs_of(halving, stop.env_frames, len(wanted.runs))][:-1]
    for decision in read_decisions(folder):
        if decision["frames"] not in rungs:
            raise SeedbedError(
                ExitCode.RESUME_REFUSED,
                f"{folder} has pruned settings at {decision['frames']:,} frames, and the rungs are "
                f"now at {', '.join(f'{one:,}' for one in rungs) or 'none'}: set halving and "
                "stop.env_frames back, or name another folder (--out)",
            )
    if not halving.first:
        return
    if refusal := _refusal(wanted):
        raise ConfigError(f"halving.first {halving.first:,}: {refusal}")
    if len({run.seed for run in wanted.runs}) >= LEAST_SEEDS and find_spec("scipy") is None:
        text = f"the intervals of a ranking need SciPy: {how_to_install('compare')}"
        raise SeedbedError(ExitCode.USAGE, text)


def _refusal(wanted: ResolvedSet) -> str:
    """Return why settings cannot be ranked at rungs; empty where they can."""
    first, experiment, axes = wanted.sweep.halving.first, wanted.base, wanted.sweep.axes
    stop = experiment.stop
    if not stop.env_frames:
        return "the last rung is stop.env_frames, which is not set"
    if first >= stop.env_frames:
        return f"the first rung must be below stop.env_frames, {stop.env_frames:,}"
    batches = [
        one.learner.batch_size * one.learner.unroll_length * one.gossip.replicas
        for one in (run.experiment for run in wanted.runs)
    ]
    if first < (least := max(batches)):
        return (
            "the first rung must hold one batch of each learner of a run, together at least "
            f"{least:,} frames"
        )
    if wanted.settings < 2:
        return "there is one setting, and a ranking takes two: name values of an axis (--set)"
    ends = [name for name in _OTHER_STOPS if getattr(stop, name)]
    ends += ["mean_return"] if stop.mean_return is not None else []
    if ends:
        nothing = "null" if ends[0] == "mean_return" else "0"
        return (
            f"stop.{ends[0]} would end runs between rungs, and settings are ranked at the same "
            f"frames: set it to {nothing}"
        )
    if found := [key for key in axes if key.partition(".")[0] in ("stop", "evaluation")]:
        return f"{found[0]} is an axis, and settings are ranked by the same frames and evaluation"
    if "environment.id" in axes:
        return "returns of different environments do not compare, and environment.id is an axis"
    if not experiment.evaluation.at_end:
        return "settings are ranked by an evaluation at each rung: set evaluation.at_end to true"
    return ""


def _halving_of(folder: Path) -> Halving:
    file = sweep_file(folder)
    return _halving_at(file, version_of(file))


# A driver and a controller read it every few seconds, beside all values of the axes.
@lru_cache(maxsize=8)
def _halving_at(file: Path, _version: tuple[int, ...]) -> Halving:
    return read_sweep(file).halving


def members_at_rungs(folder: Path) -> list[Member]:
    """Return the runs of a set as `read_members`, with their rungs where the set has some.

    Raises:
        SeedbedError: As `read_members`; RUN_DIRECTORY, the decisions are damaged.
    """
    members = read_members(folder)
    if not is_set(folder) or not (halving := _halving_of(folder)).first:
        return members
    stop = members[0].experiment.stop.env_frames
    confirms = confirming(folder)
    groups = _settings([one for one in members if one.name not in confirms])
    verdicts = {(each["frames"], name): row["goes_on"]
                for each in read_decisions(folder) for row in each["ranking"]
                for name in row["runs"]}  # fmt: skip
    rungs = [frames for frames, _ in rungs_of(halving, stop, len(groups))]
    found: dict[str, Member] = {}
    for some in groups:
        rung = _rung_of(some, rungs, verdicts)
        found |= {member.name: replace(member, rung=rung) for member in some}
    return [found.get(member.name, member) for member in members]


def _rung_of(
    members: Sequence[Member], rungs: Sequence[int], verdicts: Mapping[tuple[int, str], bool]
) -> Rung:
    """Return the first rung at which a setting was pruned, or was not ranked yet."""
    for frames in rungs[:-1]:
        found = [verdicts[frames, one.name] for one in members if (frames, one.name) in verdicts]
        if not all(found) or not found:
            return Rung(frames, rungs[-1], is_pruned=bool(found))
    return Rung(rungs[-1], rungs[-1], is_pruned=False)


def _settings(members: Sequence[Member]) -> list[list[Member]]:
    groups: dict[str, list[Member]] = {}
    for member in members:
        groups.setdefault(repr(sorted(member.values.items())), []).append(member)
    return list(groups.values())


def decide(folder: Path) -> Decision | None:
    """Rank the settings of the lowest rung that all its runs have reached, and keep the decision.

    A setting with a lost run ranks below all whole ones, and does not go on. Settings that are
    added to a set after a decision go on if they are better than the last one that did.

    Returns:
        The decision; None where nothing is to be decided, or a run has still to come.

    Raises:
        SeedbedError: SET_FAILED, every setting has lost a run; RUN_DIRECTORY, as `read_decisions`.
        OSError: The decision cannot be written.
    """
    members = members_at_rungs(folder)
    waiting = [
        (one.rung.frames, one)
        for one in members
        if one.rung is not None and not one.is_pruned and not one.rung.is_last
    ]
    frames = min((frames for frames, _ in waiting), default=0)
    here = [one for at, one in waiting if at == frames]
    if not here or not all(one.is_finished or has_failed(one) or is_stopped(one) for one in here):
        return None
    rows = [_ranked(some, frames) for some in _settings(here)]
    rows.sort(key=lambda row: math.inf if row["mean"] is None else -row["mean"])
    before = read_decisions(folder)
    kept = [row["mean"] for one in before if one["frames"] == frames for row in one["ranking"]
            if row["goes_on"] and row["mean"] is not None]  # fmt: skip
    if not kept and rows[0]["mean"] is None:
        text = "; ".join(lost for row in rows for lost in row["lost"])
        raise SeedbedError(
            ExitCode.SET_FAILED,
            f"every setting has lost a run before the rung at {frames:,} frames, and none is "
            f"ranked: {text}. --retry starts them again",
        )
    factor = _halving_of(folder).factor
    best = math.ceil(len(rows) / factor)
    for at, row in enumerate(rows):
        if row["mean"] is not None:
            row["goes_on"] = row["mean"] > min(kept) if kept else at < best
    decision = Decision(frames=frames, ranking=rows)
    atomic_write(_file(folder), json.dumps([*before, decision], indent=1, allow_nan=False) + "\n")
    return decision


def _ranked(members: Sequence[Member], frames: int) -> Ranked:
    scores, lost = [], []
    for member in members:
        score = _score(member, frames)
        if member.is_finished and score is not None and math.isfinite(score):
            scores.append(score)
        elif has_failed(member):
            lost.append(f"{member.name}: {code_name(read_ends(member)[-1]['code'])}")
        elif not member.is_finished:
            lost.append(f"{member.name}: stopped by a person")
        else:
            lost.append(f"{member.name}: {'no evaluation' if score is None else f'score {score}'}")
    interval = mean_interval(scores) if not lost else None
    return {
        "setting": describe(members[0].values),
        "runs": [member.name for member in members],
        "scores": scores if not lost else [],
        "lost": lost,
        "mean": float(np.mean(scores)) if not lost else None,
        "interval": list(interval) if interval is not None else None,
        "goes_on": False,
    }


def _score(member: Member, frames: int) -> float | None:
    """Return the mean return of the first evaluation at a rung or after it; None without one."""
    rows: Sequence[Mapping[str, Any]] = read_evaluations(member.run)
    if learner_directories(member.run):
        rows = [row] if (row := member.last_evaluation()) else []
    return next((float(row["mean"]) for row in rows if float(row["env_frames"]) >= frames), None)


def read_decisions(folder: Path) -> list[Decision]:
    """Return the decisions of a set, the first one first.

    Raises:
        SeedbedError: RUN_DIRECTORY, the file is damaged.
    """
    try:
        decisions: list[Decision] = json.loads(_file(folder).read_text())
        assert all(row["runs"] for one in decisions for row in one["ranking"] if one["frames"])
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, KeyError, AssertionError) as error:
        raise RunDirectoryError(
            f"{_file(folder)} cannot be read ({error}): restore it, or begin a set in another "
            "folder"
        ) from error
    return decisions


def pruned_last(folder: Path) -> list[Mapping[str, Any]]:
    """Return the values of the settings that were pruned at the last rung, the best one first.

    Raises:
        SeedbedError: As `read_members` and `read_decisions`.
    """
    decisions = read_decisions(folder)
    last = max((one["frames"] for one in decisions), default=0)
    rows = [row for one in decisions if one["frames"] == last for row in one["ranking"]]
    values = {member.name: member.values for member in read_members(folder)}
    pruned = [(row["mean"], row["runs"][0]) for row in rows
              if not row["goes_on"] and row["mean"] is not None]  # fmt: skip
    pruned.sort(key=lambda pair: -pair[0])
    return [values[name] for _, name in pruned]


def _file(folder: Path) -> Path:
    return folder / "set" / "halving.json"


def describe_decision(decision: Decision) -> str:
    """Return a decision in words: the last setting that goes on, and the first pruned one."""
    return "\n".join(_lines(decision))


def _lines(decision: Decision) -> Iterator[str]:
    ranking = decision["ranking"]
    going = [row for row in ranking if row["goes_on"]]
    pruned = [row for row in ranking if not row["goes_on"] and not row["lost"]]
    count = counted(len(ranking), "setting")
    yield f"rung at {decision['frames']:,} frames: {len(going)} of {count} go on"
    if going:
        yield f"  last that goes on: {_described(going[-1])}"
    if pruned:
        beside = f"; {_difference(going[-1], pruned[0])}" if going else ""
        yield f"  first pruned: {_described(pruned[0])}{beside}"
    for row in ranking:
        if row["lost"]:
            yield f"  pruned below all others: {row['setting']}, lost {', '.join(row['lost'])}"


def _described(row: Ranked) -> str:
    text = f"{row['setting']}, mean return {significant(row['mean'])}"
    if row["interval"] is not None:
        low, high = map(significant, row["interval"])
        text += f", 95 % interval [{low}, {high}]"
    return f"{text}, {counted(len(row['scores']), 'seed')}"


def _difference(one: Ranked, other: Ranked) -> str:
    if one["mean"] == other["mean"]:
        return "a tie, in which the order of the settings decides"
    p = difference_p(one["scores"], other["scores"])
    if p is None:
        return "fewer than three seeds cannot tell noise from a difference"
    return f"{'beyond' if p < LEVEL else 'within'} the noise (p = {p:.3f})"
