"""Compute the distances between the learners of a run, true and bounded.

The bounds are Propositions 1 and 2 of Assran et al. 2019 (Figure 2), from the logs of the gossip.
Writes consensus.csv and consensus.png, and gradients.png if gradients were kept; a summary goes to
stderr, one JSON object to stdout.
"""

import argparse
import csv
import itertools
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.analysis.consensus import ConsensusAnalysis, analyse_run
from seedbed.analysis.plots import TITLES, draw_consensus, draw_gradients
from seedbed.analysis.snapshots import NORMS, Norm, cosine_similarity, numbered
from seedbed.config import Experiment
from seedbed.config.gossip import Gossip
from seedbed.gossip.topology import make_topology
from seedbed.runs.resume import read_stored
from seedbed.runtime.exit_codes import RunDirectoryError
from seedbed.runtime.install import how_to_install
from seedbed.runtime.text import counted

# Rounding of the learners' own float32 arithmetic, which no event shows.
_FLOAT32 = 1e-6
_VALUES = ("distance", "start", "bound", "proposition_1", "proposition_2")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command."""
    add = parser.add_argument
    add("run_dir", type=Path, metavar="RUN_DIR", help="directory of learner-0, learner-1 and so on")
    add("--out", type=Path, metavar="DIR", help="folder of the output (default: RUN_DIR/analysis)")


def run(args: argparse.Namespace) -> None:
    """Analyse a run and write the files.

    Raises:
        SeedbedError: RUN_DIRECTORY; the run has no several learners that gossip, or their logs
            are missing or damaged.
    """
    run_dir: Path = args.run_dir
    experiment = _read_experiment(run_dir)
    gossip = experiment.gossip
    similarity, iterations = cosine_similarity(numbered(run_dir, gossip.replicas, "gradient"))
    analysis = None
    if gossip.topology == "gossip":
        every_s, window = gossip.snapshot_every_s, make_topology(gossip).window
        analysis = analyse_run(run_dir, gossip.replicas, every_s, gossip.staleness, window)
    elif not iterations:
        raise RunDirectoryError(
            f"the learners of {run_dir} do not gossip (gossip.topology: {gossip.topology}): "
            "they make the same updates, so their distance is zero; to compare their gradients, "
            "set gossip.gradients_every"
        )
    out: Path = args.out or run_dir / "analysis"
    files = _write(out, analysis, experiment, similarity if iterations else None)
    result: dict[str, Any] = {"run_dir": str(run_dir)}
    if analysis is not None:
        result |= _summary(analysis, gossip)
    result["files"] = list(map(str, files))
    if iterations:
        means = _peers_and_others(similarity, gossip)
        result["gradients"] = {"iterations": len(iterations), **means}
    for line in _report(result, analysis):
        print(f"analyze: {line}", file=sys.stderr)
    print(json.dumps(result))


def _read_experiment(run_dir: Path) -> Experiment:
    stored = run_dir / "experiment.yaml"
    try:
        text = stored.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RunDirectoryError(
            f"cannot read {stored} ({error}): name the run directory that holds experiment.yaml "
            "and learner-0, learner-1 and so on"
        ) from error
    experiment = read_stored(text, str(stored))
    if experiment.gossip.replicas < 2:
        raise RunDirectoryError(
            f"{run_dir} is a run of one learner, which is at no distance from any other: train "
            "with `seedbed train --learners 2` or more, or name the directory above learner-0"
        )
    return experiment


def _write(
    out: Path,
    analysis: ConsensusAnalysis | None,
    experiment: Experiment,
    similarity: NDArray[np.float64] | None,
) -> list[Path]:
    """Write the table and the plots, and return the paths."""
    files = []
    gossip = experiment.gossip
    title = f"{experiment.name}: {gossip.replicas} learners, {experiment.environment.id}"
    try:
        out.mkdir(parents=True, exist_ok=True)
        if analysis is not None:
            _write_table(analysis, out / "consensus.csv")
            files.append(out / "consensus.csv")
            draw_consensus(analysis, title, out / "consensus.png")
            files.append(out / "consensus.png")
        if similarity is not None:
            title += f", {gossip.topology}\nmean cosine similarity of two learners' gradients"
            draw_gradients(similarity, _edges(gossip), title, out / "gradients.png")
            files.append(out / "gradients.png")
    except OSError as error:
        raise RunDirectoryError(f"cannot write to {out} ({error}): name another --out") from error
    except ImportError as error:
        print(f"analyze: no plots ({error}): {how_to_install('plots')}", file=sys.stderr)
    return files


def _write_table(analysis: ConsensusAnalysis, file: Path) -> None:
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        columns = [f"{value}_{norm}" for norm in NORMS for value in _VALUES]
        writer.writerow(["seconds", "updates", "segment", "snapshot", *columns])
        for point in analysis.points:
            values = [getattr(point.values(norm), value) for norm in NORMS for value in _VALUES]
            writer.writerow([point.seconds, point.updates, point.segment, point.snapshot, *values])


def _summary(analysis: ConsensusAnalysis, gossip: Gossip) -> dict[str, Any]:
    result: dict[str, Any] = {
        "learners": gossip.replicas,
        "staleness": gossip.staleness,
        "window": make_topology(gossip).window,
        "events": analysis.counts,
        "segments": analysis.segments,
        "snapshots": sum(point.snapshot is not None for point in analysis.points),
        "marks": [asdict(mark) for mark in analysis.marks],
    }
    bounded = analysis.segments > 0
    for norm in NORMS:
        values = [point.values(norm) for point in analysis.points]
        both = [(v.distance, v.bound) for v in values if v.distance is not None]
        ratios = [bound / true for true, bound in both if bound is not None and true > 0]
        violations = sum(ratio < 1 - _FLOAT32 for ratio in ratios)
        result |= {
            f"distance_{norm}_first": both[0][0],
            f"distance_{norm}_last": both[-1][0],
            f"distance_{norm}_largest": max(true for true, _ in both),
            f"bound_{norm}_last": both[-1][1],
            f"bound_to_distance_{norm}_median": float(np.median(ratios)) if ratios else None,
            f"violations_{norm}": violations if bounded else None,
            f"largest_product_{norm}": analysis.largest_product[norm] if bounded else None,
            f"beta_{norm}": analysis.beta[norm],
        }
    level = analysis.proposition_2
    if isinstance(level, str):
        result["proposition_2"] = {"why_not": level}
    else:
        result["proposition_2"] = {
            "window_updates": level.window,
            "beta_w_spread": level.beta_w,
            "largest_update_2_norm": level.largest_update,
            "level_frobenius": level.level_frobenius,
            "level_spread": level.level_spread,
        }
    return result


def _edges(gossip: Gossip) -> list[set[tuple[int, int]]]:
    """Return the edges of each graph; where gradients are exchanged, one complete graph."""
    if gossip.topology != "gossip":
        return [set(itertools.permutations(range(gossip.replicas), 2))]
    return make_topology(gossip).edges()


def _peers_and_others(similarity: NDArray[np.float64], gossip: Gossip) -> dict[str, float | None]:
    """Return the mean similarity of pairs with an edge, and of pairs without one."""
    linked = {frozenset(edge) for graph in _edges(gossip) for edge in graph}
    means: dict[str, float | None] = {}
    for name, wanted in (("peers", True), ("others", False)):
        pairs = itertools.combinations(range(len(similarity)), 2)
        values = np.array([similarity[p] for p in pairs if (frozenset(p) in linked) is wanted])
        values = values[np.isfinite(values)]
        means[f"cosine_similarity_{name}"] = float(values.mean()) if len(values) else None
    return means


def _report(result: dict[str, Any], analysis: ConsensusAnalysis | None) -> Iterator[str]:
    """Yield the lines for stderr."""
    if analysis is not None:
        yield from _report_consensus(result, analysis)
    for name, value in result.get("gradients", {}).items():
        shown = "none" if value is None else f"{value:.4g}"
        yield f"gradients, {name.replace('_', ' ')}: {shown}"
    for file in result["files"]:
        yield f"wrote {file}"


def _report_consensus(result: dict[str, Any], analysis: ConsensusAnalysis) -> Iterator[str]:
    events = result["events"]
    yield (
        f"{result['learners']} learners, {events['update']:,} updates, {events['mix']:,} mixes, "
        f"{events['adopt']} adoptions; {result['snapshots']} snapshots that all of them have, "
        f"{counted(result['segments'], 'segment')}"
    )
    if events["lost"]:
        yield (
            f"{events['lost']} mixes or adoptions are of messages that no log has, because a "
            "learner lost its directory or a log is not whole: after each, nothing is bounded "
            "until the next snapshot"
        )
    if not analysis.segments:
        yield (
            "no bound: at every snapshot something is unknown that a learner started with or "
            "mixed before; write more snapshots, or make a longer run"
        )
    for norm in NORMS:
        yield TITLES[norm]
        yield (
            f"  {result[f'distance_{norm}_first']:.4g} at the first snapshot, "
            f"{result[f'distance_{norm}_last']:.4g} at the last, at most "
            f"{result[f'distance_{norm}_largest']:.4g}"
        )
        ratio = result[f"bound_to_distance_{norm}_median"]
        if ratio is not None:
            yield (
                f"  the exact bound is {ratio:.3g} times the distance in the median, and below "
                f"the distance at {result[f'violations_{norm}']} snapshots"
            )
        if analysis.segments:
            yield f"  Proposition 1: {_report_beta(analysis, norm)}"
    level = analysis.proposition_2
    if isinstance(level, str):
        yield f"no level of Proposition 2: {level}"
    else:
        yield (
            f"Proposition 2: {level.level_frobenius:.4g} (Frobenius), {level.level_spread:.4g} "
            f"(spread): {level.window} updates contract to {level.beta_w:.4g} at most, L = "
            f"{level.largest_update:.4g} (2-norm)"
        )


def _report_beta(analysis: ConsensusAnalysis, norm: Norm) -> str:
    beta, largest = analysis.beta[norm], analysis.largest_product[norm]
    if beta is None:
        return f"void, no β is enough: a product has the norm {largest:.4g} > 1"
    if beta == 1:
        return "β = 1, which is trivial: some update was not mixed by any learner for a while"
    return f"β = {beta:.6g}"
