"""Tables of the benchmark's part `replay`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Table = Callable[..., str]
Figures = Callable[..., str]


def replay_tables(result: dict[str, Any], table: Table, figures: Figures) -> str:
    """Format storages, shards, training step and insertion with the report's functions."""
    storages, training = result["homes"], result["training"]
    device = storages["device"]["device"]
    insertion = training["insertion"]
    tables = [
        table(
            f"replay within the learner ({result['backend']}, device {device}; "
            "sequences of 40 + 80 steps of 84 x 84, batches of 64)",
            ("storage", "inserted/s", "of a copy", "drawn/s", "of a copy", "priorities/s"),
            (
                (
                    storage,
                    figures(storages[storage]["insert_sequences_per_s"]),
                    figures(storages[storage]["insert_of_copy"], 2),
                    figures(storages[storage]["sample_sequences_per_s"]),
                    figures(storages[storage]["sample_of_copy"], 2),
                    figures(storages[storage]["priorities_per_s"]),
                )
                for storage in ("host", "device")
            ),
        ),
        table(
            "replay shard (two processes, unix socket)",
            ("kept in", "frame stack", "inserted/s", "of a bare stream", "drawn/s",
             "of a bare stream", "goal", "priorities/s"),
            (
                (
                    case["kept_in"],
                    str(case["frame_stack"]),
                    figures(case["insert_sequences_per_s"]),
                    figures(case["insert_of_bare_stream"], 2),
                    figures(case["sample_sequences_per_s"]),
                    figures(case["sample_of_bare_stream"], 2),
                    "0.70",
                    figures(case["priorities_per_s"]),
                )
                for case in result["service"]["cases"]
            ),
        ),
        table(
            f"training step, {training['transitions']:,} transitions of 57 floats "
            f"({training['device']})",
            ("batch", "RAM, copied each step: ms", "RAM, prefetched: ms", "device, fused: ms",
             "faster than copied: %", "than prefetched: %", "paper: %"),
            (
                (
                    str(case["batch_size"]),
                    figures(case["host_ms"], 2),
                    figures(case["prefetched_ms"], 2),
                    figures(case["device_ms"], 2),
                    figures(case["speedup_percent"], 0),
                    figures(case["speedup_percent_over_prefetched"], 0),
                    "" if case["paper_percent"] is None else f"{case['paper_percent']:.1f}",
                )
                for case in training["steps"]
            ),
        ),
        table(
            "insertion of a transition (paper: "
            f"{insertion['paper_us']['ram']} µs in RAM, {insertion['paper_us']['gpu']} µs on the "
            "GPU, 2,000 at a time)",
            ("at a time", "RAM: µs", "device: µs"),
            (
                (
                    f"{case['at_a_time']:,}",
                    figures(case["host_us"], 2),
                    figures(case["device_us"], 2),
                )
                for case in insertion["cases"]
            ),
        ),
    ]  # fmt: skip
    return "\n\n".join(tables)
