"""The results as tables: Markdown, which is readable on a terminal too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from bench.gossip.report import gossip_tables, stability_tables
from bench.replay.report import replay_tables


def table(results: dict[str, Any]) -> str:
    """Everything that was measured, for a terminal."""
    return markdown(results)


def markdown(results: dict[str, Any]) -> str:
    """Everything that was measured, a table a part; medians, with (least to greatest)."""
    parts = {
        "actor_efficiency": _actor,
        "wire_efficiency": _wire,
        "system_efficiency": _system,
        "memory": _memory,
        "replay": _replay,
        "gossip": _gossip,
        "stability": _stability,
    }
    blocks = [_heading(results)]
    blocks += [make(results[key]) for key, make in parts.items() if key in results]
    return "\n\n".join(blocks)


def _heading(results: dict[str, Any]) -> str:
    machine, revision = results["machine"], results["revision"]
    packages = ", ".join(f"{name} {v}" for name, v in machine["packages"].items() if v)
    lines = [
        f"`{results['command']}`, {results['time']}, revision {revision['commit'][:10]}"
        + (" with changes" if revision["changed"] else "")
        + f", {results['runs']} runs"
        + (", quick: no figures to quote" if results["quick"] else ""),
        f"{machine['cores']:g} cores of {machine['cpu']}, {machine['memory_gib']:g} GiB, "
        f"float32 matrix product {machine['gemm_gflops']:.0f} GFLOP/s, load before "
        f"{machine['load_average_1m']:.1f}; Python {machine['python']}, {packages}",
        "took " + ", ".join(f"{part} {s:.0f} s" for part, s in results["seconds"].items()),
    ]  # fmt: skip
    lines += [f"{part} failed, and is missing" for part in results.get("failed", {})]
    return "\n".join(f"- {line}" for line in lines)


def _actor(result: dict[str, Any]) -> str:
    return _table(
        "actor_efficiency",
        ("environments a group", "efficiency", "goal", "steps/s", "bare steps/s", "learner CPU"),
        (
            (
                str(case["environments"]),
                _series(case["efficiency"], 2),
                _goal(case["goal"]),
                _series(case["steps_per_s"]),
                _series(case["bare_steps_per_s"]),
                f"{case['learner_cpu_us_a_step']['median']:.0f} µs a step",
            )
            for case in result["cases"]
        ),
    )


def _wire(result: dict[str, Any]) -> str:
    return _table(
        "wire_efficiency",
        ("E", "streams", "efficiency", "goal", "messages/s", "bare messages/s", "server CPU a "
         "message", "bare"),
        (
            (
                str(case["environments"]),
                str(case["streams"]),
                _series(case["efficiency"], 2),
                _goal(case["goal"]),
                _series(case["messages_per_s"]),
                _series(case["bare_messages_per_s"]),
                f"{case['server_cpu_us']['median']:.0f} µs",
                f"{case['bare_server_cpu_us']['median']:.0f} µs",
            )
            for case in result["cases"]
        ),
    )  # fmt: skip


def _system(result: dict[str, Any]) -> str:
    return _table(
        "system_efficiency",
        ("network", "efficiency", "goal", "env_fps", "goal", "steps/s", "limit", "one after the "
         "other", "arithmetic", "CPU a step: environment + inference + training"),
        (
            (
                case["network"],
                _series(case["efficiency"], 2),
                _goal(case["goal"]),
                _series(case["env_fps"]),
                _goal(case["env_fps_goal"], 0),
                _series(case["steps_per_s"]),
                _series(case["limit_steps_per_s"]),
                _series(case["serial_steps_per_s"]),
                f"{case['arithmetic_steps_per_s']['median']:,.0f} ({case['mflop_a_step']:.0f} "
                f"MFLOP at {case['gemm_gflops']['median']:.0f} GFLOP/s)",
                " + ".join(
                    f"{case[f'{part}_cpu_us']['median']:.0f}" for part in ("env", "infer", "train")
                )
                + f" µs (inference of {case['infer_batch']})",
            )
            for case in result["cases"]
        ),
    )  # fmt: skip


def _memory(result: dict[str, Any]) -> str:
    slot, growth = result["slot"], result["growth"]
    return _table(
        "memory",
        ("what", "figure"),
        (
            ("a slot, measured", f"{slot['bytes_a_slot'] / 1024:.0f} KiB"),
            (
                "a slot, computed",
                f"{slot['computed_bytes_a_slot'] / 1024:.0f} KiB: unroll "
                f"{slot['computed_unroll_bytes'] / 1024:.0f}, device tables "
                f"{slot['computed_table_bytes'] / 1024:.0f}",
            ),
            *(
                (
                    f"{who}, resident after {growth['env_frames'] / 1e6:.2f} M frames",
                    f"{growth[f'{who}_rss_bytes'] / 2**20:.0f} MiB, "
                    f"{growth[f'{who}_rss_growth_bytes'] / 2**20:+.1f} MiB since warm, "
                    f"{growth[f'{who}_bytes_a_million_frames'] / 2**20:+.1f} MiB a million frames",
                )
                for who in ("learner", "actors")
            ),
        ),
    )


def _replay(result: dict[str, Any]) -> str:
    return replay_tables(result, _table, _series)


def _gossip(result: dict[str, Any]) -> str:
    return gossip_tables(result, _table)


def _stability(result: dict[str, Any]) -> str:
    return stability_tables(result, _table)


def _series(figures: dict[str, Any], digits: int = 0) -> str:
    median, low, high = (f"{figures[name]:,.{digits}f}" for name in ("median", "min", "max"))
    return f"{median} ({low} to {high})"


def _goal(goal: float | None, digits: int = 2) -> str:
    return "" if goal is None else f"{goal:,.{digits}f}"


def _table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table whose columns line up."""
    cells = [list(head), *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |"
             for row in cells]  # fmt: skip
    rule = "|" + "|".join("-" * (w + 2) for w in widths) + "|"
    return "\n".join([f"**{title}**", "", lines[0], rule, *lines[1:]])
