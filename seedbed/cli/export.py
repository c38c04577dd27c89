"""`seedbed export`: a trained policy as a file that plain Keras loads."""

from __future__ import annotations

import argparse
import sys

from seedbed import backends
from seedbed.cli.arguments import Subparsers
from seedbed.runs.directory import read_checkpoint
from seedbed.runs.resume import read_stored
from seedbed.runtime.exit_codes import ExitCode


def add_parser(subparsers: Subparsers) -> None:
    """Declare `export RUN_DIR DIR`."""
    parser = subparsers.add_parser("export", help="write a policy that plain Keras loads")
    parser.add_argument("run_dir", metavar="RUN_DIR", help="run directory, or a .safetensors file")
    parser.add_argument("directory", metavar="DIR", help="new or empty directory of the files")
    parser.add_argument(
        "--checkpoint",
        default="newest",
        metavar="newest|best|N",
        help="checkpoint: N is a number of updates (default: newest)",
    )


def run(args: argparse.Namespace) -> int:
    """Write the policy; the path of `policy.keras` goes to stdout.

    Raises:
        SeedbedError: no such checkpoint, or its network cannot be exported.
    """
    checkpoint = read_checkpoint(args.run_dir, args.checkpoint)
    experiment = read_stored(str(checkpoint.meta["experiment"]), checkpoint.path)
    backends.use(experiment.learner.backend)
    from seedbed.export.policy import export_policy

    exported = export_policy(checkpoint, args.directory)
    print(f"exported {checkpoint.path} at {checkpoint.updates} updates", file=sys.stderr)
    for name in exported.imports:
        print(f"import {name} before loading the policy: Keras lacks this layer", file=sys.stderr)
    print(exported.model)
    return ExitCode.OK
