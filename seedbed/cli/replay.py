"""Run one replay shard, which stores sequences for learners with `storage: remote`.

The first learner sets the sizes of a sequence. Sequences in a directory on a volume outlast a
restart; sequences in memory are lost.
"""

import argparse
import logging
import math
import sys
from pathlib import Path

from seedbed.cli.arguments import add_credentials, credentials_of
from seedbed.numbers import DEFAULT_BOUNDS, Bounds
from seedbed.rpc.certificate_stats import CertificateStats
from seedbed.rpc.credentials import check_exposure
from seedbed.runtime.allocator import keep_large_blocks
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.http import start_metrics_server
from seedbed.runtime.signals import exit_on_sigterm, on_stop_signals
from seedbed.runtime.threads import Threads
from seedbed.runtime.tokens import Role

log = logging.getLogger(__name__)

# Longest wait for the server to stop.
STOP_S = 8.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `replay`."""
    add = parser.add_argument
    add(
        "--listen",
        default="127.0.0.1:8480",
        metavar="ADDRESS",
        help="host:port or unix:PATH that learners connect to (default %(default)s)",
    )
    add("--directory", type=Path, metavar="DIR", help="folder of the sequences (default: memory)")
    add("--sequences", type=int, required=True, metavar="N", help="capacity of the shard")
    add(
        "--priority-exponent",
        type=float,
        default=0.9,
        metavar="X",
        help="learner.replay.priority_exponent of the experiment (default %(default)s)",
    )
    for what, of in (("reward", "rewards"), ("observation", "frames of floats")):
        add(
            f"--max-abs-{what}",
            type=float,
            default=getattr(DEFAULT_BOUNDS, what),
            metavar="X",
            help=f"largest magnitude of {of}, environment.max_abs_{what} of the experiment "
            "(default %(default)g)",
        )
    add("--memory-gib", type=float, metavar="GIB", help="memory to use (default: the container's)")
    add(
        "--metrics-port",
        type=int,
        default=9093,
        metavar="PORT",
        help="HTTP port of /metrics and /status; 0: none (default %(default)s)",
    )
    add_credentials(parser, listens=True)


def run(args: argparse.Namespace) -> None:
    """Run the shard until SIGTERM."""
    exit_on_sigterm()
    keep_large_blocks()
    if args.sequences < 1 or not args.priority_exponent >= 0:
        raise SeedbedError(
            ExitCode.USAGE,
            f"--sequences {args.sequences} must be at least 1, and --priority-exponent "
            f"{args.priority_exponent:g} not negative",
        )
    bounds = Bounds(args.max_abs_reward, args.max_abs_observation)
    if not all(0 < bound < math.inf for bound in bounds):
        raise SeedbedError(
            ExitCode.USAGE,
            f"--max-abs-reward {bounds.reward:g} and --max-abs-observation "
            f"{bounds.observation:g} must be positive and finite",
        )
    from seedbed.services.replay.server import ReplayServer
    from seedbed.services.replay.shard import Shard

    memory = None if args.memory_gib is None else int(args.memory_gib * 2**30)
    shard = Shard(args.sequences, args.priority_exponent, args.directory, memory, bounds)
    threads = Threads()
    credentials = credentials_of(args, Role.SHARD)
    if credentials.tls:
        shard.registry.add(CertificateStats(credentials.tls.folder))
    check_exposure(args.listen, credentials, "--listen")
    server = ReplayServer(shard, args.listen, threads, credentials)
    http = start_metrics_server(
        args.metrics_port,
        shard.registry,
        unready=lambda: None if server.address and shard.serving else "not listening",
        status=shard.status,
        tokens=credentials.tokens,
        insecure=credentials.insecure,
    )
    shard.open()
    address = server.start()
    # Before it is said, because a stop may follow at once.
    on_stop_signals(lambda _: threads.stopping.set())
    print(f"seedbed: listening on {address}", file=sys.stderr, flush=True)
    threads.stopping.wait()
    server.close()
    stuck = threads.join(STOP_S)
    shard.close()
    if http is not None:
        http.close()
    if threads.failure is not None:
        raise threads.failure
    if stuck:
        log.warning("did not end within %g s: %s", STOP_S, ", ".join(stuck))
