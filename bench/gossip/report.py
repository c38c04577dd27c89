"""The parts `gossip` and `stability` as tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Table = Callable[..., str]


def gossip_tables(result: dict[str, Any], table: Table) -> str:
    """The wire, speed, and a straggler. `table` is the report's own."""
    speed, straggler = result["speed"], result["straggler"]
    share, steps = speed["gossip_share_of_time"], speed["gossip_share_of_steps"]
    blocks = [
        table(
            "bytes on the wire of a mixing, TCP, everything counted",
            ("parameters of", "bytes", "on the wire", "ratio", "goal"),
            (
                (
                    name,
                    f"{case['parameters_bytes']:,}",
                    f"{case['wire_bytes']:,.0f}",
                    f"{case['ratio']:.4f}",
                    "1.02",
                )
                for name, case in result["exchange"].items()
            ),
        ),
        table(
            f"learners on {speed['environment']}, {speed['simulators']} simulators each",
            ("learners", "env frames/s", "updates/s", "mixes/s", "of the learner's time: %",
             "of its training steps: %"),
            (
                (
                    name,
                    f"{case['env_frames']:,.0f}",
                    f"{case['updates']:.1f}",
                    f"{case['gossip_mixes']:.1f}",
                    f"{100 * share[name]:.2f}",
                    f"{100 * steps[name]:.1f}",
                )
                for name, case in speed["cases"].items()
            ),
        ),
        table(
            "frames a second, as ratios",
            ("", "ratio"),
            ((name, f"{ratio:.2f}") for name, ratio in speed["ratios"].items()),
        ),
        table(
            f"a straggler: {straggler['learners']} learners on {straggler['environment']}, the "
            f"steps of one of them {1000 * straggler['slow_s']:g} ms longer",
            ("learners", "env frames/s"),
            (
                (name, f"{case['env_frames']:,.0f}")
                for name, case in straggler["cases"].items()
            ),
        ),
        "With the straggler "
        + ", ".join(f"{name} keeps {100 * kept:.0f} %" for name, kept in straggler["kept"].items())
        + f"; gossip is {straggler['gossip / allreduce, one slow']:.2f} times as fast as "
        "all-reduce then.",
    ]  # fmt: skip
    return "\n\n".join(blocks)


def stability_tables(result: dict[str, Any], table: Table) -> str:
    """Shares of runs that learned, a table a task."""
    return "\n\n".join(
        table(
            f"{name}: runs above half of A2C's mean score with 16 simulators "
            f"({task['half_of_nominal']:.4g}) after {task['env_frames']:,} frames "
            f"({task['backend']})",
            ("method, simulators", "successful", "runs", "scores"),
            (
                (
                    case,
                    f"{100 * share:.0f} %",
                    str(len(task["scores"][case])),
                    _sorted(task["scores"][case]),
                )
                for case, share in task["successful"].items()
            ),
        )
        for name, task in result.items()
    )  # fmt: skip


def _sorted(scores: Sequence[float | None]) -> str:
    """Rising, those without a score first."""
    known = sorted(score for score in scores if score is not None)
    return ", ".join(["none"] * (len(scores) - len(known)) + [f"{score:.3g}" for score in known])
