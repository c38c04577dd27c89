"""Run one actor, or several, which step environments for a learner.

Of several learners, each group of environments connects to the least loaded one with free slots.
Without --index the seeds come from the host's name, so that pods differ. With --processes the first
process that ends takes the others with it, as the processes of one container.
"""

import argparse
import hashlib
import socket

from seedbed.cli.arguments import (
    add_credentials,
    add_experiment,
    add_parent,
    credential_options,
    credentials_of,
    exit_with_parent,
)
from seedbed.config import load_experiment
from seedbed.runtime.allocator import keep_large_blocks
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.signals import exit_on_sigterm
from seedbed.runtime.tokens import Role
from seedbed.spec import ACTORS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `actor EXPERIMENT`."""
    add_experiment(parser)
    add = parser.add_argument
    add("--learner", required=True, metavar="ADDRESS[,ADDRESS...]", help="host:port or unix:PATH")
    add("--index", type=int, help="index in the run, for the seeds (default: from the host's name)")
    text = "actors, each a process with the next index (default: 1, this process)"
    add("--processes", type=int, default=1, metavar="N", help=text)
    text = "frames of the run so far: the environments then begin before a learner answers"
    add("--env-frames", type=int, metavar="N", help=text)
    add_credentials(parser)
    add_parent(parser)


def run(args: argparse.Namespace) -> int | None:
    """Run until the experiment is over or SIGTERM.

    Raises:
        SeedbedError: USAGE, or as `Actor.run`.
    """
    exit_on_sigterm()
    keep_large_blocks()
    exit_with_parent(args)
    index = args.index
    if index is None:
        digest = hashlib.sha256(socket.gethostname().encode()).digest()
        index = int.from_bytes(digest[:4], "little") % ACTORS
    if not 0 <= index < ACTORS:
        raise SeedbedError(ExitCode.USAGE, f"--index {index} is out of range 0 to {ACTORS - 1}")
    if args.env_frames is not None and args.env_frames < 0:
        raise SeedbedError(ExitCode.USAGE, f"--env-frames {args.env_frames} is below 0")
    if args.processes < 1:
        raise SeedbedError(ExitCode.USAGE, f"--processes {args.processes} is below 1")
    experiment = load_experiment(args.experiment, args.set)
    if args.processes > 1:
        from seedbed.launch.actor_group import run_actors

        indices = [(index + more) % ACTORS for more in range(args.processes)]
        return run_actors(_arguments(args), indices)
    from seedbed.services.actor.actor import Actor

    kind = Actor
    if experiment.learner.inference.location == "actor":
        from seedbed.services.impala_actor.actor import ImpalaActor

        kind = ImpalaActor
    credentials = credentials_of(args, Role.ACTOR)
    actor = kind(experiment, args.learner, index, credentials, args.env_frames)
    actor.run()
    return None


def _arguments(args: argparse.Namespace) -> list[str]:
    """Return the arguments of one of several processes, but for its index."""
    given = [f"--learner={args.learner}", *credential_options(args)]
    if args.env_frames is not None:
        given.append(f"--env-frames={args.env_frames}")
    return [args.experiment, *given, *(f"--set={override}" for override in args.set)]
