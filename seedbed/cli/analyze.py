"""`seedbed analyze`: how far a run's learners were from each other, and the bounds of it."""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from seedbed.analysis.ball import NORMS, Ball, Norm, analyse_run
from seedbed.analysis.gradients import cosine_similarity
from seedbed.analysis.pictures import TITLES, draw_ball, draw_gradients
from seedbed.analysis.snapshots import numbered
from seedbed.cli.arguments import Subparsers
from seedbed.config import Experiment
from seedbed.config.gossip import Gossip
from seedbed.gossip.topology import make_topology
from seedbed.runs.resume import read_stored
from seedbed.runtime.exit_codes import ExitCode, SeedbedError

_FLOAT32 = 1e-6  # rounding of the learners' own arithmetic, which no event tells
_VALUES = ("distance", "start", "bound", "proposition_1", "proposition_2")


def add_parser(subparsers: Subparsers) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "analyze",
        help="say how far a run's learners were from each other, and draw it",
        description="The distances of the learners of a run, true and bounded (Assran et al. 2019, "
        "Propositions 1 and 2, Figure 2), from what they logged of their gossip. Writes ball.csv "
        "and ball.png, and gradients.png where gradients were kept; a summary goes to stderr, one "
        "JSON object to stdout.",
    )
    parser.add_argument(
        "run_dir", type=Path, metavar="RUN_DIR", help="of several learners: holds learner-0 ..."
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="where the files go (default: RUN_DIR/analysis)"
    )


def run(args: argparse.Namespace) -> int:
    """Analyse a run and write the files.

    Raises:
        SeedbedError: RUN_DIRECTORY; it is no run of several learners that gossip, or what they
            logged is missing or damaged.
    """
    run_dir: Path = args.run_dir
    experiment = _experiment(run_dir)
    gossip = experiment.gossip
    similarity, iterations = cosine_similarity(numbered(run_dir, gossip.replicas, "gradient"))
    ball = None
    if gossip.topology == "gossip":
        ball = analyse_run(
            run_dir,
            gossip.replicas,
            gossip.snapshot_every_s,
            gossip.staleness,
            make_topology(gossip).window,
        )
    elif not iterations:
        raise SeedbedError(
            ExitCode.RUN_DIRECTORY,
            f"the learners of {run_dir} do not gossip (gossip.topology: {gossip.topology}): "
            "they make the same updates, and are at no distance from each other; how alike their "
            "gradients are is known with gossip.gradients_every",
        )
    out: Path = args.out or run_dir / "analysis"
    files = _write(out, ball, experiment, similarity if iterations else None)
    result = {"run_dir": str(run_dir), **(_summary(ball, experiment) if ball else {})}
    result["files"] = files
    if iterations:
        result["gradients"] = {
            "iterations": len(iterations),
            **_peers_and_others(similarity, experiment),
        }
    _say(result, ball)
    print(json.dumps(result))
    return ExitCode.OK


def _experiment(run_dir: Path) -> Experiment:
    stored = run_dir / "experiment.yaml"
    try:
        text = stored.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SeedbedError(
            ExitCode.RUN_DIRECTORY,
            f"cannot read {stored} ({error}): name the run directory that holds experiment.yaml "
            "and learner-0, learner-1 and so on",
        ) from error
    experiment = read_stored(text, str(stored))
    if experiment.gossip.replicas < 2:
        raise SeedbedError(
            ExitCode.RUN_DIRECTORY,
            f"{run_dir} is a run of one learner, which is at no distance from any other: train "
            "with `seedbed train --learners 2` or more, or name the directory above learner-0",
        )
    return experiment


def _write(
    out: Path,
    ball: Ball | None,
    experiment: Experiment,
    similarity: np.ndarray[Any, Any] | None,
) -> list[str]:
    """The table and the pictures; their paths."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        files = []
        if ball is not None:
            files.append(out / "ball.csv")
            _write_table(ball, files[0])
    except OSError as error:
        raise SeedbedError(
            ExitCode.RUN_DIRECTORY, f"cannot write to {out} ({error}): name another --out"
        ) from error
    gossip = experiment.gossip
    title = f"{experiment.name}: {gossip.replicas} learners, {experiment.environment.id}"
    try:
        if ball is not None:
            draw_ball(ball, title, out / "ball.png")
            files.append(out / "ball.png")
        if similarity is not None:
            draw_gradients(
                similarity,
                _edges(gossip),
                f"{title}, {gossip.topology}\nmean cosine similarity of two learners' gradients",
                out / "gradients.png",
            )
            files.append(out / "gradients.png")
    except ImportError as error:
        print(f"report: no pictures ({error}): pip install seedbed[plots]", file=sys.stderr)
    return list(map(str, files))


def _write_table(ball: Ball, file: Path) -> None:
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        columns = [f"{value}_{norm}" for norm in NORMS for value in _VALUES]
        writer.writerow(["seconds", "updates", "segment", "snapshot", *columns])
        for point in ball.points:
            values = [getattr(point.values(norm), value) for norm in NORMS for value in _VALUES]
            writer.writerow([point.seconds, point.updates, point.segment, point.snapshot, *values])


def _summary(ball: Ball, experiment: Experiment) -> dict[str, Any]:
    gossip = experiment.gossip
    level = ball.proposition_2
    result: dict[str, Any] = {
        "learners": gossip.replicas,
        "staleness": gossip.staleness,
        "window": make_topology(gossip).window,
        "events": ball.counts,
        "segments": ball.segments,
        "snapshots": sum(point.snapshot is not None for point in ball.points),
        "marks": [
            {"seconds": mark.seconds, "learner": mark.learner, "what": mark.what,
             "alive": list(mark.alive)}
            for mark in ball.marks
        ],
    }  # fmt: skip
    for norm in NORMS:
        both = [
            (values.distance, values.bound)
            for values in (point.values(norm) for point in ball.points)
            if values.distance is not None
        ]
        ratios = [bound / true for true, bound in both if bound is not None and true > 0]
        result |= {
            f"distance_{norm}_first": both[0][0],
            f"distance_{norm}_last": both[-1][0],
            f"distance_{norm}_largest": max(true for true, _ in both),
            f"bound_{norm}_last": both[-1][1],
            f"bound_to_distance_{norm}_median": float(np.median(ratios)) if ratios else None,
            f"violations_{norm}": (
                sum(ratio < 1 - _FLOAT32 for ratio in ratios) if ball.segments else None
            ),
            f"largest_product_{norm}": ball.largest_product[norm] if ball.segments else None,
            f"beta_{norm}": ball.beta[norm],
        }
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
    """Who sends to whom, graph by graph; by all-reduce everybody exchanges with everybody."""
    if gossip.topology == "allreduce":
        return [set(itertools.permutations(range(gossip.replicas), 2))]
    return make_topology(gossip).edges()


def _peers_and_others(
    similarity: np.ndarray[Any, Any], experiment: Experiment
) -> dict[str, float | None]:
    n = len(similarity)
    linked = {frozenset(edge) for graph in _edges(experiment.gossip) for edge in graph}
    pairs = [(i, j) for i in range(n) for j in range(i)]
    groups = {
        "cosine_similarity_peers": [p for p in pairs if frozenset(p) in linked],
        "cosine_similarity_others": [p for p in pairs if frozenset(p) not in linked],
    }
    means: dict[str, float | None] = {}
    for name, chosen in groups.items():
        values = np.array([similarity[pair] for pair in chosen])
        values = values[np.isfinite(values)]
        means[name] = float(values.mean()) if len(values) else None
    return means


def _say(result: dict[str, Any], ball: Ball | None) -> None:
    lines = [] if ball is None else _ball_lines(result, ball)
    for name, value in result.get("gradients", {}).items():
        shown = "none" if value is None else f"{value:.4g}"
        lines.append(f"gradients, {name.replace('_', ' ')}: {shown}")
    lines += [f"wrote {file}" for file in result["files"]]
    print("\n".join(f"report: {line}" for line in lines), file=sys.stderr)


def _ball_lines(result: dict[str, Any], ball: Ball) -> list[str]:
    lines = [
        "{learners} learners, {update:,} updates, {mix:,} mixes, {adopt} adoptions; {snapshots} "
        "snapshots that all of them have, {segments} segment(s)".format(
            **result, **result["events"]
        )
    ]
    if lost := result["events"]["lost"]:
        lines.append(
            f"{lost} mixes or adoptions are of messages that no log has, because a learner lost "
            "its directory or a log is not whole: after each, nothing is bounded until the next "
            "snapshot"
        )
    if not ball.segments:
        lines.append(
            "no bound: at no snapshot is everything known that the learners began with, or mixed "
            "before; more snapshots, or a longer run, have one"
        )
    for norm in NORMS:
        lines.append(f"{TITLES[norm]}")
        lines.append(
            f"  {result[f'distance_{norm}_first']:.4g} at the first snapshot, "
            f"{result[f'distance_{norm}_last']:.4g} at the last, at most "
            f"{result[f'distance_{norm}_largest']:.4g}"
        )
        ratio = result[f"bound_to_distance_{norm}_median"]
        if ratio is not None:
            lines.append(
                f"  the exact bound is {ratio:.3g} times it in the median, and below it at "
                f"{result[f'violations_{norm}']} snapshots"
            )
        if ball.segments:
            lines.append(f"  Proposition 1: {_beta(ball, norm)}")
    level = ball.proposition_2
    if isinstance(level, str):
        lines.append(f"no level of Proposition 2: {level}")
    else:
        lines.append(
            f"Proposition 2: {level.level_frobenius:.4g} (Frobenius), {level.level_spread:.4g} "
            f"(spread): {level.window} updates contract to {level.beta_w:.4g} at most, L = "
            f"{level.largest_update:.4g} (2-norm)"
        )
    return lines


def _beta(ball: Ball, norm: Norm) -> str:
    beta, largest = ball.beta[norm], ball.largest_product[norm]
    if beta is None:
        return f"void, no β is enough: a product has the norm {largest:.4g} > 1"
    if beta == 1:
        return "β = 1, so it says nothing: some update was not mixed by anybody for a while"
    return f"β = {beta:.6g}"
