"""Train an experiment on this machine: one learner and actor.processes actors.

The same command run again resumes. Progress goes to stderr; one JSON object goes to stdout, but not
on a terminal, nor into a log that takes both. Several learners have actor.processes actors each,
and exchange parameters or gradients by gossip.topology.
"""

import argparse
import logging

from seedbed.cli.arguments import add_experiment, add_parent, exit_with_parent
from seedbed.cli.output import add_json, print_result
from seedbed.config import Experiment, load_experiment
from seedbed.config.load import default_run_directory, run_of
from seedbed.config.without_effect import settings_without_effect
from seedbed.envs.probe import EnvironmentProbe
from seedbed.launch.actors import LocalActors
from seedbed.launch.early_checks import check_disk, check_environment, check_ports
from seedbed.launch.run_end import at_end, check_frames, ending
from seedbed.launch.run_header import header
from seedbed.runs.directory import RunDirectory, open_run_directory
from seedbed.runs.history import this_command
from seedbed.runs.layout import host_directory, run_of_part
from seedbed.runs.upload import check_uploaded
from seedbed.runtime.exit_codes import RunDirectoryError
from seedbed.runtime.guard import claim_run
from seedbed.runtime.log_files import RunLog
from seedbed.runtime.paths import absolute, shown
from seedbed.runtime.signals import RUN_STOPS, exit_at_once_on_signals, on_stop_signals
from seedbed.runtime.terminal import file_formatter, leave_to_file, print_lines
from seedbed.sets.code import note_lone_begin

log = logging.getLogger(__name__)

# Loggers whose lines are for the log file, not for the person who trains.
_DETAILS = ("seedbed.services.learner.sessions", "seedbed.services.learner.device_memory")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `train EXPERIMENT`."""
    add_experiment(parser)
    add_run_directory(parser)
    parser.add_argument(
        "--learners", type=int, metavar="N", help="number of learners (default: gossip.replicas)"
    )
    # The rank of one of several learners, which the first process starts.
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    # The same of one of several hosts.
    parser.add_argument("--host", type=int, help=argparse.SUPPRESS)
    add_json(parser)
    add_parent(parser)


def add_run_directory(parser: argparse.ArgumentParser) -> None:
    """Add `--run-dir`, `--restart` and `--init-from`."""
    add = parser.add_argument
    add("--run-dir", metavar="DIR", help="run directory (default: runs/NAME of the experiment)")
    add(
        "--restart",
        choices=("resume", "fresh", "overwrite"),
        default="resume",
        help="resume the run in DIR (default), move it to DIR.1 (fresh), or delete its files "
        "(overwrite)",
    )
    add("--init-from", metavar="RUN_DIR", help="run, or .safetensors file, to take parameters from")
    text = (
        "accept the one change of settings that DIGEST names, as the refusal of a command prints it"
    )
    add("--change", metavar="DIGEST", default="", help=text)
    # What a person has typed to start this process: a call of `seedbed.train`, or `helm upgrade`.
    add("--called-as", default="", help=argparse.SUPPRESS)
    add("--owner", default="", help=argparse.SUPPRESS)
    add("--adopt", default="", help=argparse.SUPPRESS)


def open_run(
    args: argparse.Namespace, experiment: Experiment, host: int = 0, is_whole: bool = False
) -> RunDirectory:
    """Open and lock the run directory that the arguments name, and log to logs/learner.log.

    Args:
        args: of a parser with `add_run_directory`.
        experiment: the experiment.
        host: number of this host of the learner.
        is_whole: the command is for a whole run, which it leaves as it is if it is at its end.
    """
    own = run_of(args.experiment)
    whole_path = args.run_dir or default_run_directory(args.experiment, experiment.name)
    path = host_directory(whole_path, host)
    # What another process of the run starts has that process's settings, which were accepted.
    is_part = args.exit_with_parent is not None and (args.rank, args.host) != (None, None)
    if is_whole and not is_part and (whole := run_of_part(path)) is not None:
        raise RunDirectoryError(f"{shown(path)} is a part of the run {shown(whole)}: name that run")
    run = open_run_directory(
        path,
        experiment,
        args.restart,
        args.init_from,
        accepted="*" if is_part else args.change,
        command=this_command(args.argv, args.called_as),
        set_here=args.set if own is not None else None,
        may_be_finished=is_whole and not is_part,
        owner=None if host else args.owner,
        adopt=args.adopt,
    )
    claim_run(run.path)
    if run.finished is not None:
        return run
    handler = RunLog(run.logs / "learner.log")
    handler.setFormatter(file_formatter())
    logging.getLogger().addHandler(handler)
    return run


def warn_of_settings(experiment: Experiment) -> None:
    """Log each setting that differs from the default and has no effect."""
    for line in settings_without_effect(experiment):
        log.warning("%s", line)


def warn_of_exploration(experiment: Experiment) -> None:
    """Warn where this machine's actors hold the first of more levels of exploration."""
    levels = getattr(experiment.builtin_options, "epsilon_levels", 0)
    envs = experiment.actor.total_envs
    if 0 < envs < levels:
        key = f"{experiment.agent}.epsilon_levels"
        log.warning(
            "%s is %d, and the actors of this machine have %d environments: they hold the first "
            "%d levels of exploration, which are the greatest; %s=0 follows the environments",
            key, levels, envs, envs, key,
        )  # fmt: skip


def start_probe(experiment: Experiment, run: RunDirectory) -> EnvironmentProbe | None:
    """Start to read the sizes of the environment, where no checkpoint has them."""
    known = run.resume_from is not None or run.start_from is not None
    if known:
        return None
    return EnvironmentProbe(experiment.environment, experiment.actor.environment_timeout_s)


def run(args: argparse.Namespace) -> None:
    """Train until a stop condition or a signal."""
    exit_at_once_on_signals()
    exit_with_parent(args)
    leave_to_file(*_DETAILS)
    if args.learners is not None:
        args.set = [*args.set, f"gossip.replicas={args.learners}"]
    experiment = load_experiment(args.experiment, args.set)
    is_first = args.rank is None and args.host is None
    if is_first:
        note_lone_begin(absolute(args.experiment), experiment)
    with open_run(args, experiment, is_whole=True) as directory:
        experiment = directory.experiment
        if directory.finished is not None:
            if directory.upload is not None and not directory.upload.is_done:
                directory.upload.finish()
            print_lines(at_end(directory.finished, directory, bool(args.called_as)))
            print_result(args, directory.finished)
            check_frames(directory.finished)
            check_uploaded(directory.upload, directory.finished)
            return
        if is_first:
            print_lines(header(experiment, directory))
            warn_of_settings(experiment)
            warn_of_exploration(experiment)
        if experiment.gossip.replicas > 1 and args.rank is None:
            from seedbed.launch.learners import train_multi_learner

            # The run was moved with all its learners: no `--restart fresh` for each.
            passed = ["--restart=overwrite"] if args.restart == "overwrite" else []
            passed += [f"--init-from={args.init_from}"] if args.init_from else []
            summary = train_multi_learner(experiment, directory, passed)
        elif experiment.learner.hosts > 1 and args.host is None:
            from seedbed.launch.hosts import train_hosts

            # The run was opened as `--restart` says: its hosts go on from there.
            passed = [f"--init-from={args.init_from}"] if args.init_from else []
            summary = train_hosts(experiment, directory, passed, args.rank or 0)
        elif experiment.learner.deterministic:
            from seedbed.services.learner.single_threaded import run_deterministic

            summary = run_deterministic(experiment, directory)
        else:
            summary = _train(experiment, directory, args.rank, args.host)
    if is_first:
        print_lines(ending(summary, directory, bool(args.called_as)))
    print_result(args, summary)
    check_frames(summary)
    if is_first:
        check_uploaded(directory.upload, summary)


def _train(
    experiment: Experiment, directory: RunDirectory, rank: int | None, host: int | None
) -> dict[str, object]:
    probe = start_probe(experiment, directory)
    from seedbed.services.learner.learner import Learner

    check_ports(experiment)
    check_disk(directory)
    address = f"unix:{directory.socket}"
    learner = Learner(experiment, directory, address, rank=rank or 0, host=host or 0)
    alone = rank is None and host is None
    on_stop_signals(
        lambda name: learner.stop(f"signal {name}"), alone, notice=RUN_STOPS if alone else ""
    )
    if (summary := learner.summary_if_finished()) is not None:
        return summary
    learner.profiler.profile_on_signal()
    number = (rank or 0) * experiment.learner.hosts + (host or 0)
    actors = LocalActors(
        experiment, directory, address, learner.threads, number,
        lambda: learner.counters.env_frames,
    )  # fmt: skip
    learner.telemetry.environment_wait = lambda: (
        actors.waiting() or (probe.waiting if probe is not None else "")
    )
    try:
        # First, because to open environments takes as long as to load the backend.
        actors.start()
        check_environment(probe)
        learner.start(probe)
        return learner.run()
    finally:
        actors.stop()
