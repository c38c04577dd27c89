"""`seedbed evaluate`: play a trained policy and print its returns."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seedbed import backends
from seedbed.cli.arguments import Subparsers, add_parent, exit_with_parent
from seedbed.config import Experiment, parse_experiment
from seedbed.config.load import dump_experiment
from seedbed.evaluation.atari_protocol import departures, with_table_9
from seedbed.runs.directory import read_checkpoint
from seedbed.runs.resume import compare, read_stored
from seedbed.runtime.exit_codes import ExitCode, SeedbedError

if TYPE_CHECKING:
    from seedbed.checkpoints.store import Checkpoint
    from seedbed.evaluation.play import Settings, Tally

_PROGRESS_S = 5.0


def add_parser(subparsers: Subparsers) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "evaluate",
        help="play a trained policy and print its returns",
        description="Play a trained policy, without learning. Atari is played by the protocol of "
        "the paper's Table 9, whatever the training did: up to 30 random no-ops, at most 108,000 "
        "frames an episode, no sticky actions. A summary goes to stderr, one JSON object to "
        "stdout.",
    )
    parser.add_argument("run_dir", metavar="RUN_DIR", help="a run directory or its checkpoints'")
    parser.add_argument(
        "--checkpoint",
        default="newest",
        metavar="newest|best|N|FILE",
        help="which one: N is a number of updates, FILE ends in .safetensors (default: newest)",
    )
    parser.add_argument("--episodes", type=_positive, default=200, metavar="N", help="default: 200")
    parser.add_argument(
        "--policy",
        choices=("sample", "greedy"),
        help="how actions are chosen (default: evaluation.policy)",
    )
    parser.add_argument(
        "--environments",
        type=_positive,
        metavar="E",
        help="that play at the same time (default: evaluation.num_envs)",
    )
    parser.add_argument(
        "--seed", type=int, metavar="S", help="default: the experiment's; no episode of training"
    )
    parser.add_argument(
        "--max-steps",
        type=_positive,
        default=100_000,
        metavar="M",
        help="an episode that is longer is cut, and counted as cut (default: 100000)",
    )
    parser.add_argument("--video", type=Path, metavar="FILE.mp4", help="film one more episode")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="a.b=c",
        help="override a key of the experiment, and of Table 9 (repeatable)",
    )
    add_parent(parser, hidden=True)


def run(args: argparse.Namespace) -> int:
    """Play; the summary goes to stderr, one JSON object to stdout.

    Raises:
        SeedbedError: no such checkpoint, or the environment cannot be played here.
    """
    if not exit_with_parent(args, signal.SIGKILL):  # nobody else wants the result
        return ExitCode.OK
    checkpoint = _checkpoint(args.run_dir, args.checkpoint)
    trained = read_stored(str(checkpoint.meta["experiment"]), checkpoint.path)
    experiment, changed = with_table_9(trained)
    experiment = _overridden(trained, experiment, args.set)
    for line in changed:
        _say(f"Table 9: {line}")
    if experiment.environment.id.startswith("atari:"):
        for line in departures(experiment.environment):
            _say(f"not as Table 9: {line}")
    backend = backends.use(experiment.learner.backend, device=experiment.learner.device)
    # These import Keras, so after its backend is fixed.
    from seedbed.evaluation.play import Policy, Settings, evaluate
    from seedbed.evaluation.video import check_video, film
    from seedbed.export.policy import load_agent

    if args.video:
        check_video(args.video)
    _, agent = load_agent(checkpoint)
    policy = Policy(backend, agent, checkpoint.spec, trained.learner.frame_stack)
    settings = Settings(
        episodes=args.episodes,
        greedy=(args.policy or _policy(experiment, agent)) == "greedy",
        environments=args.environments or experiment.evaluation.num_envs,
        seed=experiment.seed if args.seed is None else args.seed,
        max_steps=args.max_steps,
    )
    result = {
        "environment": experiment.environment.id,
        "checkpoint": checkpoint.path,
        "env_frames": checkpoint.meta["counters"]["env_frames"],
        "updates": checkpoint.updates,
        **evaluate(policy, experiment, settings, _Progress(settings)),
    }
    try:
        if args.video:
            result["video"] = film(policy, experiment, settings, args.video)
    finally:  # what was played is not lost with a film that fails
        _summary(result)
        print(json.dumps(result))
    return ExitCode.OK


def _policy(experiment: Experiment, agent: Any) -> str:
    policy: str = experiment.evaluation.policy
    return getattr(agent, "evaluates", "sample") if policy == "agent" else policy


def _checkpoint(run_dir: str, name: str) -> Checkpoint:
    if name.endswith(".safetensors") and "/" in name:
        return read_checkpoint(name)
    return read_checkpoint(run_dir, name)


def _overridden(trained: Experiment, experiment: Experiment, overrides: list[str]) -> Experiment:
    """With `--set`, which must not change what the policy's parameters depend on."""
    changed = parse_experiment(dump_experiment(experiment), overrides, "evaluate")
    refused = [
        change
        for change in compare(trained, changed)
        if not change.allowed and change.key != "seed"
    ]
    if refused:
        raise SeedbedError(
            ExitCode.CONFIG,
            "; ".join(f"--set {change}: {change.why}" for change in refused),
        )
    return changed


class _Progress:
    """A line now and then."""

    def __init__(self, settings: Settings) -> None:
        self._wanted = settings.episodes
        self._started = self._said = time.monotonic()

    def __call__(self, tally: Tally) -> None:
        now = time.monotonic()
        if now - self._said < _PROGRESS_S:
            return
        self._said = now
        so_far = [episode.total for episode in tally.ended.values()]
        mean = f", mean {sum(so_far) / len(so_far):.4g} so far" if so_far else ""
        _say(f"{len(so_far)} of {self._wanted} episodes in {now - self._started:.0f} s{mean}")


def _summary(result: dict[str, Any]) -> None:
    error = result["standard_error"]
    _say(f"{result['environment']} after {result['env_frames']:,} frames, {result['checkpoint']}")
    _say(
        f"{result['episodes']} episodes, {result['policy']} policy: mean {result['mean']:.4g}"
        + (f" ± {error:.2g} (standard error)" if error is not None else "")
        + f", median {result['median']:.4g}, from {result['min']:.4g} to {result['max']:.4g}; "
        f"{result['mean_length']:,.0f} steps on average; {result['seconds']:.0f} s"
    )
    if result["human_normalised"] is not None:
        _say(f"human-normalised score {100 * result['human_normalised']:.1f} %")
    if result["cut_episodes"]:
        _say(
            f"{result['cut_episodes']} episodes were cut after "
            f"{result['protocol']['max_steps']:,} steps (--max-steps): their returns are too short"
        )
    if result["restarted_episodes"]:
        _say(f"{result['restarted_episodes']} episodes began again: their environment raised")
    if "video" in result:
        video = result["video"]
        _say(f"{video['file']}: one episode of {video['length']} steps, return "
             f"{video['return']:.4g}")  # fmt: skip


def _say(line: str) -> None:
    print(f"evaluate: {line}", file=sys.stderr, flush=True)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is below 1")
    return value
