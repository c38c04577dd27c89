"""Progress line and summary of a run of several learners."""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from seedbed.runs.totals import bill_of
from seedbed.runtime.formats import money, number, si_number
from seedbed.telemetry.counters import Counters
from seedbed.telemetry.energy import frames_per_kilojoule
from seedbed.telemetry.progress_line import eta, returns
from seedbed.telemetry.status import RunStatus


def read_json(path: Path) -> Any:
    """Return what a JSON file holds; None where there is none, or no whole one."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def learners_line(statuses: Sequence[RunStatus | None], running: int) -> list[str]:
    """Return the parts of the progress line of all learners, the most important first.

    Args:
        statuses: status.json of each learner, by rank.
        running: number of learner processes that run.
    """
    known = [status for status in statuses if status is not None]
    numbers = [status["numbers"] for status in known]

    def total(name: str) -> float:
        return sum(item.get(name) or 0 for item in numbers)

    earned = [
        (item["mean_return"], item["mean_return_episodes"])
        for item in numbers
        if item.get("mean_return_episodes")
    ]
    episodes = sum(count for _, count in earned)
    mean = sum(value * count for value, count in earned) / episodes if episodes else None
    mixes = total("gossip_mixes")
    distance = max((item.get("gossip_distance_max") or 0 for item in numbers), default=0)
    apart = f", {distance:.3g} apart" if distance else ""
    ends = [left["seconds"] for status in known if (left := status.get("eta"))]
    is_limit = any(status["stop"]["mean_return"] is not None for status in known)
    waiting = [
        f"learner {rank}: {status['waiting_for'] if status else 'starting'}"
        for rank, status in enumerate(statuses)
        if status is None or status.get("waiting_for")
    ]
    return [
        returns(mean, episodes),
        f"{running} of {len(statuses)} learners",
        f"{si_number(total('env_frames'))} frames",
        f"{number(total('env_fps_10s'))} frames/s",
        eta(max(ends, default=None), is_limit),
        *([f"{si_number(mixes)} mixes{apart}"] if mixes else []),
        *([f"now: {'; '.join(waiting)}"] if waiting else []),
        money(total("run_dollars")),
    ]


def run_summary(
    statuses: Sequence[RunStatus | None],
    printed: Sequence[Mapping[str, Any] | None],
    evaluation: Mapping[str, Any] | None,
    dollars: float,
) -> dict[str, Any]:
    """Return the object that ends a run: sums, means, and each learner's own summary.

    `seconds` is the median of all learners, because they run at the same time and one that was
    restarted has counted anew.

    Args:
        statuses: status.json of each learner, by rank.
        printed: summary of each learner, by rank; None of one that ended without any.
        evaluation: result of the run's last evaluation.
        dollars: US dollars since the ends of the learners.
    """
    summaries = [summary for summary in printed if summary is not None]
    total = {field.name: sum(s[field.name] for s in summaries) for field in fields(Counters)}
    total["dollars"] = bill_of([s["dollars"] for s in summaries], statuses) if summaries else 0.0
    seconds = statistics.median(s["seconds"] for s in summaries) if summaries else 0.0
    episodes = sum(summary["mean_return_episodes"] for summary in summaries)
    earned = [
        summary["mean_return"] * summary["mean_return_episodes"]
        for summary in summaries
        if summary["mean_return"] is not None
    ]
    # Each learner reads the counters of the whole machine.
    measured = [s for s in summaries if s.get("joules")]
    joules = max((s["joules"] for s in measured), default=None)
    frames = sum(s["frames_per_kilojoule"] * s["joules"] / 1000 for s in measured)
    return {
        **total,
        "seconds": seconds,
        "dollars": total["dollars"] + dollars,
        "env_fps": total["env_frames"] / seconds if seconds else None,
        "mean_return": sum(earned) / episodes if episodes else None,
        "mean_return_episodes": episodes,
        "joules": joules,
        "frames_per_kilojoule": frames_per_kilojoule(frames, joules),
        "stop_reason": next(iter(s["stop_reason"] for s in summaries), None),
        "evaluation": evaluation,
        "learners": [
            None if summary is None else {**summary, "gossip": _gossip_numbers(status)}
            for summary, status in zip(printed, statuses, strict=True)
        ],
    }


def _gossip_numbers(status: RunStatus | None) -> dict[str, Any]:
    numbers = status["numbers"] if status else {}
    prefix = "gossip_"
    return {n.removeprefix(prefix): x for n, x in numbers.items() if n.startswith(prefix)}
