"""Tables of the parts `gossip` and `stability`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Table = Callable[..., str]


def gossip_tables(result: dict[str, Any], table: Table) -> str:
    """Return the tables of the wire, speed, and a straggler.

    Args:
        result: What `part.gossip` returned.
        table: Formats one table.
    """
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
            (
                "learners",
                "env frames/s",
                "updates/s",
                "mixes/s",
                "of the learner's time: %",
                "of its training steps: %",
            ),
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
            ((name, f"{case['env_frames']:,.0f}") for name, case in straggler["cases"].items()),
        ),
        "With the straggler "
        + ", ".join(f"{name} keeps {100 * kept:.0f} %" for name, kept in straggler["kept"].items())
        + f"; gossip is {straggler['gossip / allreduce, one slow']:.2f} times as fast as "
        "all-reduce then.",
    ]
    return "\n\n".join(blocks)


def stability_tables(result: dict[str, Any], table: Table) -> str:
    """Return the shares of runs that learned, one table a task.

    Args:
        result: What `part.stability` returned.
        table: Formats one table.
    """
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
    )


def _sorted(scores: Sequence[float | None]) -> str:
    """Return the scores in rising order, missing ones first."""
    known = sorted(score for score in scores if score is not None)
    return ", ".join(["none"] * (len(scores) - len(known)) + [f"{score:.3g}" for score in known])
