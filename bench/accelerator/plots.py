"""Pictures of the first hour: one PNG beside the JSON."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.accelerator.in_gpu_paper import PAPER_RUN_PERCENT
from bench.accelerator.table1 import ATARI

PAPER = {"color": "0.6", "label": "paper (TITAN X)"}
COLORS = ("#1f6f5c", "#b5541c", "#3a5fa0", "#8a3f8f")


def draw(results: dict[str, Any], path: Path) -> list[str]:
    """Draw what was measured; return the file's name in a list, or the reason without one."""
    if importlib.util.find_spec("matplotlib") is None:
        return ["not drawn: matplotlib is not installed"]
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    panels: list[tuple[str, Callable[[Any, dict[str, Any]], None]]] = [
        ("inference", _latency),
        ("inference", _rows),
        ("training", _training),
        ("in_gpu_paper", _table_1),
        ("in_gpu_paper", _figure_3),
        ("in_gpu_paper", _figure_4),
        ("end_to_end", _end_to_end),
        ("curves", _curves),
    ]
    drawn = [
        (results["parts"][part], panel) for part, panel in panels if results["parts"].get(part)
    ]
    if not drawn:
        return ["not drawn: nothing to draw was measured"]
    columns = min(3, len(drawn))
    rows = -(-len(drawn) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(5.2 * columns, 3.8 * rows), squeeze=False, layout="constrained"
    )
    for axis, (cases, panel) in zip(axes.flat, drawn, strict=False):
        panel(axis, cases)
        axis.grid(alpha=0.3)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=8)
    for axis in axes.flat[len(drawn) :]:
        axis.set_axis_off()
    facts = results["parts"].get("doctor", {}).get("machine", {})
    kinds = ", ".join(facts.get("kinds", [])) or "device unknown"
    quick = ", --quick: no figures to quote" if results["quick"] else ""
    figure.suptitle(f"{kinds}, {results['backend']}, {results['time'][:10]}{quick}")
    out = path.with_suffix(".png")
    figure.savefig(out, dpi=110)
    plt.close(figure)
    return [out.name]


def _labelled(axis: Any, title: str, x: str, y: str, sizes: Any = ()) -> None:
    axis.set_title(title, fontsize=10)
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    if sizes:
        axis.set_xscale("log", base=2)
        axis.set_xticks(sorted(set(sizes)), [f"{size:,}" for size in sorted(set(sizes))])
        axis.minorticks_off()
        axis.tick_params(axis="x", labelsize=8)


def _by(cases: dict[str, Any], *names: str) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """Return the cases by the values of some of their keys."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for case in cases.values():
        groups.setdefault(tuple(case[name] for name in names), []).append(case)
    return groups


def _latency(axis: Any, cases: dict[str, Any]) -> None:
    for color, (key, group) in zip(
        COLORS, _by(cases, "precision", "training").items(), strict=False
    ):
        rows = [case["rows"] for case in group]
        name = f"{key[0]}, training {key[1]}"
        axis.plot(rows, [case["p50_ms"] for case in group], "o-", color=color, label=name)
        axis.plot(rows, [case["p99_ms"] for case in group], ":", color=color)
    axis.set_yscale("log")
    sizes = [case["rows"] for case in cases.values()]
    _labelled(axis, "inference: p50 (dotted: p99)", "rows of a batch", "ms", sizes)


def _rows(axis: Any, cases: dict[str, Any]) -> None:
    for color, (key, group) in zip(
        COLORS, _by(cases, "precision", "training").items(), strict=False
    ):
        rate = [case["rows_per_s"] / 1e3 for case in group]
        label = f"{key[0]}, training {key[1]}"
        axis.plot([case["rows"] for case in group], rate, "o-", color=color, label=label)
    sizes = [case["rows"] for case in cases.values()]
    _labelled(axis, "inference: throughput", "rows of a batch", "thousand rows/s", sizes)
    axis.set_ylim(bottom=0)


def _training(axis: Any, cases: dict[str, Any]) -> None:
    for color, (key, group) in zip(COLORS, _by(cases, "precision").items(), strict=False):
        took = [case["update_ms"]["median"] for case in group]
        axis.plot([case["batch_size"] for case in group], took, "o-", color=color, label=key[0])
    sizes = [case["batch_size"] for case in cases.values()]
    _labelled(axis, "V-trace update", "unrolls of a batch", "ms", sizes)
    axis.set_ylim(bottom=0)


def _steps(cases: dict[str, Any]) -> list[dict[str, Any]]:
    return [case for name, case in cases.items() if name.startswith("step/")]


def _bars(axis: Any, names: list[str], ours: list[Any], papers: list[Any]) -> None:
    """Draw ours and the paper's side by side, with the numbers on them."""
    for offset, values, style in (
        (-0.2, ours, {"color": COLORS[0], "label": "here"}),
        (0.2, papers, PAPER),
    ):
        there = [(at + offset, value) for at, value in enumerate(values) if value is not None]
        if there:
            bars = axis.bar(*zip(*there, strict=False), 0.38, **style)
            axis.bar_label(bars, fmt="%.0f", fontsize=7)
    axis.set_xticks(range(len(names)), names, fontsize=8)
    axis.axhline(0, color="black", linewidth=0.6)


def _table_1(axis: Any, cases: dict[str, Any]) -> None:
    steps = _steps(cases)
    runs: dict[int, dict[str, float]] = {}
    for case in cases.values():
        if "storage" in case:
            runs.setdefault(case["batch_size"], {})[case["storage"]] = case["env_frames_per_s"]
    whole = {batch: run for batch, run in runs.items() if len(run) == 2 and run["host"]}
    names = [str(case["batch_size"]) for case in steps] + [f"run, {batch}" for batch in whole]
    ours = [case["speedup_percent"]["median"] for case in steps]
    ours += [100 * (run["device"] / run["host"] - 1) for run in whole.values()]
    papers = [case["paper_percent"] for case in steps]
    papers += [PAPER_RUN_PERCENT.get(batch) for batch in whole]
    _bars(axis, names, ours, papers)
    _labelled(axis, "in-GPU paper, Table 1: faster on the device", "batch", "%")


def _figure_3(axis: Any, cases: dict[str, Any]) -> None:
    if "insertion" not in cases:
        axis.set_axis_off()
        return
    insertion = cases["insertion"]
    sizes = [case["at_a_time"] for case in insertion["cases"]]
    for color, home in zip(COLORS, ("host", "device"), strict=False):
        took = [case[f"{home}_us"]["median"] for case in insertion["cases"]]
        axis.plot(sizes, took, "o-", color=color, label=f"{home}, here")
    papers = insertion["paper_us"]
    axis.axhline(papers["ram"], color="0.6", linestyle="--", label="RAM, paper")
    axis.plot([2000], [papers["gpu"]], "s", color="0.6", label="GPU, paper (2,000)")
    axis.set_xscale("log")
    axis.set_yscale("log")
    _labelled(axis, "in-GPU paper, Figure 3: insertion", "transitions at a time", "µs a transition")


def _figure_4(axis: Any, cases: dict[str, Any]) -> None:
    steps = _steps(cases)
    sizes = [case["batch_size"] for case in steps]
    ways = {"host_ms": "RAM, copied", "prefetched_ms": "RAM, prefetched", "device_ms": "device"}
    for color, (way, label) in zip(COLORS, ways.items(), strict=False):
        axis.plot(sizes, [case[way]["median"] for case in steps], "o-", color=color, label=label)
    _labelled(axis, "in-GPU paper, Figure 4: training step", "batch", "ms", sizes)
    axis.set_ylim(bottom=0)


def _end_to_end(axis: Any, cases: dict[str, Any]) -> None:
    rates = [case["env_frames_per_s"] / 1e3 for case in cases.values()]
    bars = axis.barh(list(cases), rates, color=COLORS[0])
    axis.bar_label(bars, fmt="{:,.4g}", fontsize=8, padding=3)
    row = ATARI[0]
    axis.axvline(row.frames_per_s / 1e3, color="0.6", linestyle="--")
    axis.margins(x=0.2)
    axis.invert_yaxis()
    axis.tick_params(axis="y", labelsize=8)
    paper = f"dashed: paper, R2D2 on {row.accelerators}, {row.actor_cpus} CPUs"
    _labelled(axis, "end to end, all cores", f"thousand env frames/s ({paper})", "")
    axis.xaxis.label.set_fontsize(8)


def _curves(axis: Any, cases: dict[str, Any]) -> None:
    for color, (key, group) in zip(COLORS, _by(cases, "game").items(), strict=False):
        curve = group[-1]["curve"]  # of the whole run so far
        frames = [point["env_frames"] / 1e6 for point in curve]
        axis.plot(frames, [point["mean_return"] for point in curve], color=color, label=key[0])
    _labelled(axis, "V-trace", "million env frames", "mean return of 100 episodes")
