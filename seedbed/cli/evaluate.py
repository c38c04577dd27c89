"""Play a trained policy, without learning, and print its returns.

Atari is played by the protocol of the paper's Table 9, whatever the training did: bilinear images,
1 to 30 random no-ops, at most 108,000 frames an episode, no sticky actions; --set overrides the
protocol, too. With --follow the command is a worker beside a run, with cores or a device apart.
Training used other seeds of environments. An episode that --max-steps cuts is counted as cut. A
summary goes to stderr; one JSON object goes to stdout, but not on a terminal, nor into a log that
takes both.
"""

import argparse
import json
import logging
import os
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seedbed import backends
from seedbed.checkpoints.format import Checkpoint, CheckpointReadError
from seedbed.cli.arguments import add_parent, add_set, add_trust, exit_with_parent, positive
from seedbed.cli.output import add_json, emit, print_result
from seedbed.config import Experiment, parse_experiment
from seedbed.config.load import dump_experiment
from seedbed.evaluation.atari_protocol import apply_atari_protocol, deviations
from seedbed.evaluation.video_file import check_video
from seedbed.runs.evaluations import append_evaluation, read_evaluations
from seedbed.runs.resume import compare
from seedbed.runs.stored import read_checkpoint
from seedbed.runs.trust import stored_experiment
from seedbed.runtime.calls import WAITING
from seedbed.runtime.exit_codes import ConfigError, ExitCode
from seedbed.runtime.guard import leaving
from seedbed.runtime.paths import absolute, shown
from seedbed.runtime.terminal import is_log_file, print_lines
from seedbed.runtime.text import counted
from seedbed.spec import ENVIRONMENTS

if TYPE_CHECKING:
    from seedbed.evaluation.episodes import EpisodeCollector, EvaluationSettings

log = logging.getLogger(__name__)

_CLOSE_S = 5.0
_PROGRESS_S = 5.0
_POLL_S = 5.0  # of --follow


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `evaluate RUN_DIR`."""
    add = parser.add_argument
    add("run_dir", metavar="RUN_DIR", help="run directory, or directory of its checkpoints")
    add(
        "--checkpoint",
        default="newest",
        metavar="newest|best|N|FILE",
        help="N is a number of updates, FILE ends in .safetensors (default: newest)",
    )
    add("--episodes", type=positive, default=200, help="episodes that are played (default: 200)")
    add("--policy", choices=("sample", "greedy"), help="default: evaluation.policy")
    add("--num-envs", type=_num_envs, help="environments (default: evaluation.num_envs)")
    add("--seed", type=int, help="seed of environments and actions (default: the experiment's)")
    text = "steps after which an episode is cut (default %(default)d)"
    add("--max-steps", type=positive, default=100_000, help=text)
    text = "evaluate each newest checkpoint until the run ends; a row of each in evaluations.csv"
    add("--follow", action="store_true", help=text)
    text = "frames between two evaluations of --follow (default: every checkpoint that is there)"
    add("--every", type=positive, metavar="FRAMES", help=text)
    text = "folder of evaluations.csv of --follow, where RUN_DIR is remote (default: RUN_DIR)"
    add("--rows", type=Path, metavar="FOLDER", help=text)
    text = "with --follow: stay when the run is over, until a signal, as a container of a pod must"
    add("--linger", action="store_true", help=text)
    add("--video", type=Path, metavar="FILE.mp4", help="record one more episode as a video")
    add_set(parser)
    add_trust(parser)
    # Lines on stdout before the result, for the run that starts this process.
    add("--progress", action="store_true", help=argparse.SUPPRESS)
    add_json(parser)
    add_parent(parser)


def run(args: argparse.Namespace) -> None:
    """Evaluate; the summary goes to stderr, one JSON object to stdout.

    Raises:
        SeedbedError: no such checkpoint, or the environment cannot be played here.
    """
    exit_with_parent(args)
    if args.video:
        check_video(args.video)
    if args.linger and not args.follow:
        raise ConfigError("--linger goes with --follow: one evaluation ends by itself")
    if (args.every or args.rows) and not args.follow:
        raise ConfigError("--every and --rows go with --follow: one evaluation prints its result")
    if args.follow and args.checkpoint != "newest":
        raise ConfigError(
            f"--checkpoint {args.checkpoint} does not go with --follow, which takes each newest one"
        )
    if args.follow:
        _follow(args)
        return
    in_other_folder = args.checkpoint.endswith(".safetensors") and "/" in args.checkpoint
    checkpoint = (
        read_checkpoint(args.checkpoint)
        if in_other_folder
        else read_checkpoint(args.run_dir, args.checkpoint)
    )
    _evaluate(args, checkpoint)


def _evaluate(args: argparse.Namespace, checkpoint: Checkpoint) -> dict[str, Any]:
    """Play the episodes of one checkpoint; print and return their result."""
    trained = stored_experiment(checkpoint, args.trust)
    experiment, changed = apply_atari_protocol(trained)
    experiment = _overridden(trained, experiment, args.set)
    for line in changed:
        _report(f"Table 9: {line}")
    for line in deviations(experiment.environment):
        _report(f"not as Table 9: {line}")
    backend = backends.use(experiment.learner.backend, device=experiment.learner.device)
    # These import Keras, so after its backend is fixed.
    from seedbed.evaluation.episodes import EvaluationSettings, evaluate
    from seedbed.evaluation.trained_policy import TrainedPolicy
    from seedbed.evaluation.video import record_video

    policy = TrainedPolicy.from_checkpoint(checkpoint, trained, backend)
    settings = EvaluationSettings(
        episodes=args.episodes,
        greedy=args.policy == "greedy" if args.policy else policy.is_greedy(experiment),
        num_envs=args.num_envs or experiment.evaluation.num_envs,
        seed=experiment.seed if args.seed is None else args.seed,
        max_steps=args.max_steps,
    )
    if args.progress:
        WAITING.listener = _emit_waiting
    counters = checkpoint.meta["counters"]
    with ExitStack() as closing:
        progress = _Progress(settings, args.progress)
        result: dict[str, Any] = {
            "environment": experiment.environment.id,
            "checkpoint": checkpoint.path,
            "env_frames": counters["env_frames"],
            "training_seconds": counters.get("seconds"),
            "updates": checkpoint.updates,
            **evaluate(policy, experiment, settings, progress, closing),
        }
        try:
            if args.video:
                result["video"] = record_video(policy, experiment, settings, args.video, closing)
        finally:  # a video that fails must not lose the episodes
            _report_summary(result)
            print_result(args, result)
        last = closing.pop_all()
    if args.follow:
        last.close()
    else:
        _close_in_time(last)
    return result


def _close_in_time(environments: ExitStack) -> None:
    """Close environments; end the process after a moment where one hangs: the result is safe."""

    def end() -> None:
        log.warning("an environment's close has not come back for %g s: not waited for", _CLOSE_S)
        os._exit(ExitCode.OK)

    leaving(ExitCode.OK)
    timer = threading.Timer(_CLOSE_S, end)
    timer.daemon = True
    timer.start()
    environments.close()
    timer.cancel()


def _follow(args: argparse.Namespace) -> None:
    """Evaluate the newest checkpoint, again and again, until the last one of an ended run."""
    if "://" not in args.run_dir:
        args.run_dir = str(absolute(args.run_dir))
    folder, every = args.rows or Path(args.run_dir), args.every or 1
    if args.rows is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"--rows {folder}: the folder cannot be made: {error}") from error
    due, last, waits = 0.0, "", True
    for row in read_evaluations(folder):
        due, last = float(row["env_frames"]) + every, Path(row["checkpoint"]).name
    while True:
        # Read first, so that the newest checkpoint after it is the run's last one.
        is_over = (Path(args.run_dir) / "summary.json").exists()
        newest = _newest(args.run_dir)
        if newest is None and waits:
            _report(f"{args.run_dir} has no checkpoint yet: waiting for its first one")
            waits = False
        if newest is not None and Path(newest.path).name != last:
            frames = newest.meta["counters"]["env_frames"]
            if frames >= due or is_over:
                append_evaluation(folder, _evaluate(args, newest))
                due, last = frames + every, Path(newest.path).name
                continue
        if is_over and not args.linger:
            return
        time.sleep(_POLL_S)


def _newest(run_dir: str) -> Checkpoint | None:
    """Return the newest checkpoint; None before the first."""
    try:
        return read_checkpoint(run_dir)
    except CheckpointReadError:
        return None


def _overridden(trained: Experiment, experiment: Experiment, overrides: list[str]) -> Experiment:
    """Apply `--set`, which must not change what the policy's parameters depend on."""
    changed = parse_experiment(dump_experiment(experiment), overrides, "evaluate")
    refused = [
        change for change in compare(trained, changed) if change.refusal and change.key != "seed"
    ]
    if refused:
        raise ConfigError("; ".join(f"--set {change.text}: {change.refusal}" for change in refused))
    return changed


class _Progress:
    """Reports the episodes so far: on stderr every few seconds, on stdout each second if wanted."""

    def __init__(self, settings: "EvaluationSettings", on_stdout: bool) -> None:
        self._wanted, self._on_stdout = settings.episodes, on_stdout
        self._printed = 0.0
        self._started = self._reported = time.monotonic()

    def __call__(self, collector: "EpisodeCollector") -> None:
        now = time.monotonic()
        to_print = self._on_stdout and now - self._printed >= 1.0
        to_report = now - self._reported >= _PROGRESS_S
        if not (to_print or to_report):
            return
        totals = [episode.total for episode in collector.ended.values()]
        if to_print:
            self._printed = now
            done = {
                "ended": len(totals),
                "episodes": self._wanted,
                "mean": sum(totals) / len(totals) if totals else None,
            }
            emit(json.dumps({"progress": done}))
        if not to_report:
            return
        self._reported = now
        mean = f", mean {sum(totals) / len(totals):.4g} so far" if totals else ""
        played = f"{len(totals)} of {counted(self._wanted, 'episode')}"
        _report(f"{played} in {now - self._started:.0f} s{mean}")


def _emit_waiting(text: str) -> None:
    """Tell the run that started this process of a call that takes long."""
    if text:
        emit(json.dumps({"progress": {"waiting": text}}))


def _report_summary(result: dict[str, Any]) -> None:
    error = result["standard_error"]
    _report(
        f"{result['environment']} after {counted(result['env_frames'], 'frame')}, "
        f"{result['checkpoint']}"
    )
    _report(
        f"{counted(result['episodes'], 'episode')}, {result['policy']} policy: "
        f"mean {result['mean']:.4g}"
        + (f" ± {error:.2g} (standard error)" if error is not None else "")
        + f", median {result['median']:.4g}, from {result['min']:.4g} to {result['max']:.4g}; "
        f"mean length {result['mean_length']:,.0f}; {result['seconds']:.0f} s"
    )
    if result["human_normalised"] is not None:
        _report(f"human-normalised score {100 * result['human_normalised']:.1f} %")
    if result["cut_episodes"]:
        _report(
            f"episodes cut after {counted(result['protocol']['max_steps'], 'step')} "
            f"(--max-steps): {result['cut_episodes']:,}; their returns are too low"
        )
    if result["restarted_episodes"]:
        _report(
            "episodes started again because their environment raised: "
            f"{result['restarted_episodes']:,}"
        )
    if video := result.get("video"):
        _report(
            f"{shown(video['file'])}: one episode of {counted(video['length'], 'step')}, "
            f"return {video['return']:.4g}"
        )


def _report(line: str) -> None:
    if is_log_file():
        log.info("%s", line)
    else:
        print_lines(f"evaluate: {line}")


def _num_envs(text: str) -> int:
    value = positive(text)
    if value > ENVIRONMENTS:
        raise argparse.ArgumentTypeError(f"{value} is above {ENVIRONMENTS}")
    return value
