"""Write a trained policy as a file that plain Keras loads."""

import argparse
import sys
from pathlib import Path

from seedbed import backends
from seedbed.cli.arguments import add_trust
from seedbed.cli.output import emit
from seedbed.export.folder import check_empty
from seedbed.runs.stored import read_checkpoint
from seedbed.runs.trust import stored_experiment
from seedbed.runtime.text import counted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `export RUN_DIR DIR`."""
    add = parser.add_argument
    add("run_dir", metavar="RUN_DIR", help="run directory, or a .safetensors file")
    add("directory", metavar="DIR", type=Path, help="new or empty directory of the files")
    add("--checkpoint", default="newest", metavar="newest|best|N", help="N is a number of updates")
    add_trust(parser)


def run(args: argparse.Namespace) -> None:
    """Write the policy; the path of `policy.keras` goes to stdout.

    Raises:
        SeedbedError: no such checkpoint, or its network cannot be exported.
    """
    check_empty(args.directory)
    checkpoint = read_checkpoint(args.run_dir, args.checkpoint)
    experiment = stored_experiment(checkpoint, args.trust)
    backends.use(experiment.learner.backend)
    from seedbed.export.policy import export_policy

    model, imports = export_policy(checkpoint, experiment, args.directory)
    print(
        f"exported {checkpoint.path} after {counted(checkpoint.updates, 'update')}", file=sys.stderr
    )
    for name in imports:
        print(f"import {name} before loading the policy: Keras lacks this layer", file=sys.stderr)
    emit(str(model))
