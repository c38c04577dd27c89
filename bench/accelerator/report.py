"""The first hour as tables: Markdown, which is readable on a terminal too."""

from collections.abc import Callable, Mapping
from typing import Any

from bench.replay.part import INSERTION_CELLS, INSERTION_HEAD, STEP_CELLS, STEP_HEAD
from bench.report import Case, Table, blocks, named

THREADS = ("inference", "training")


def _beginning(name: str) -> Callable[[Case], list[Case]]:
    return lambda part: [case for case in part["cases"] if case["name"].startswith(name)]


# By part.
TABLES = {
    "doctor": [
        Table(
            "{kinds[0]}, {memory_gib:.1f} GiB for the backend, {machine[cores]:g} cores of "
            "{machine[cpu]}, {machine[memory_gib]:g} GiB"
        )
    ],
    "invariant": [
        Table(
            "master invariant on the device: |log ρ| between acting and training",
            "precision | steps | median | 99th percentile | largest | mean | holds",
            "{name} | {steps:,} | {median:.1e} | {p99:.1e} | {largest:.1e} | {mean:.1e} | {holds}",
        )
    ],
    "inference": [
        Table(
            "inference, V-trace's Nature network",
            "precision | rows | training | p50: ms | p99: ms | rows/s | updates/s",
            "{precision} | {rows:,} | {training} | {p50_ms:.2f} | {p99_ms:.2f} | "
            "{rows_per_s:,.0f} | {updates_per_s:.1f}",
        )
    ],
    "training": [
        Table(
            "V-trace update, Nature network",
            "precision | batch | steps a unroll | ms | steps/s",
            "{precision} | {batch_size} | {unroll_length} | {update_ms:.2f} | {steps_per_s:,.0f}",
        )
    ],
    "in_gpu_paper": [
        Table(
            "training step of the in-GPU paper (its Table 1 and Figure 4; its column is of a "
            "TITAN X and its bus)",
            STEP_HEAD,
            STEP_CELLS,
            _beginning("step/"),
        ),
        Table(
            "insertion of a transition (its Figure 3; paper: 1.4 µs in RAM, 37.5 µs on the GPU, "
            "2,000 at a time)",
            INSERTION_HEAD,
            INSERTION_CELLS,
            _beginning("insertion/"),
        ),
        Table(
            "its whole run, by `experiments/in-gpu-dqn.yaml` (the seconds of 8.5 M frames are "
            "derived from the rate; paper: faster on the device by)",
            "batch | storage | env frames/s | updates/s | 8.5 M frames: s | paper: %",
            "{batch_size} | {storage} | {env_frames_per_s:,.0f} | {updates_per_s:,.0f} | "
            "{derived_seconds_of_it:,.0f} | {paper_percent_faster_on_device:.1f}",
            _beginning("run/"),
        ),
    ],
    "r2d2_on_device": [
        Table(
            "R2D2 (Table 8), its replay on the device",
            "precision | sequences | wanted | bytes a sequence | GiB | update: ms | "
            "trained steps/s",
            "{precision} | {sequences:,} | {wanted:,} | {bytes_a_sequence:,.0f} | {gib:.2f} | "
            "{step_ms:.1f} | {trained_steps_per_s:,.0f}",
        )
    ],
    "end_to_end": [
        Table(
            "end to end, with all cores of the machine",
            "agent, environment, precision | environments | env frames/s | trained frames/s | "
            "updates/s | inference busy | training busy | bottleneck",
            "{name} | {environments:,} | {env_frames_per_s:,.0f} | {trained_frames_per_s:,.0f} | "
            "{updates_per_s:.1f} | {inference_busy:%} | {training_busy:%} | {bottleneck[part]}",
        )
    ],
    "curves": [
        Table(
            "V-trace in the minutes that were left",
            "game | slice | env frames so far | mean return",
            "{game} | {slice} | {env_frames:,.0f} | {mean_return:.1f}",
        )
    ],
}


def markdown(results: Mapping[str, Any]) -> str:
    """Return everything that was measured, medians with (least to greatest)."""
    revision = results["revision"]
    texts = [
        f"- `{results['command']}`, {results['time']}, revision {revision['commit'][:10]}"
        + (" with changes" if revision["changed"] else "")
        + (", quick: no figures to quote" if results["quick"] else "")
        + f", {results['backend']}, {results['spent_s'] / 60:.1f} of {results['minutes']:g} minutes"
    ]
    for part, tables in TABLES.items():
        if cases := _flat(results["parts"].get(part, {})):
            texts += blocks(tables, {**cases[0], "cases": cases})
    missing = [f"- not measured: {name}: {why}" for name, why in results["missing"].items()]
    texts += ["\n".join(missing)] if missing else []
    return "\n\n".join(texts)


def _flat(cases: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the cases with their names; those of insertion one by one; busy fractions by name."""
    rows = []
    for row in named(cases):
        if row["name"] == "insertion":
            rows += [{"name": "insertion/", **case} for case in row["cases"]]
            continue
        busy = row.get("busy", {})
        rows.append({**row, **{f"{thread}_busy": busy.get(thread) for thread in THREADS}})
    return rows
