"""Write what a learner trains on, as arrays and a picture.

An experiment begins with new parameters, a run with those of its newest checkpoint. A batch that a
learner has put aside, because its update was skipped, is read from its file.
"""

import argparse
import sys
from pathlib import Path

from seedbed import backends
from seedbed.analysis.unroll_files import UnrollDump, load_batch, plot_unroll, write_unroll
from seedbed.cli.arguments import add_set, add_trust
from seedbed.cli.output import emit
from seedbed.config import Experiment, load_experiment, parse_experiment
from seedbed.config.load import dump_experiment
from seedbed.runs.stored import read_checkpoint
from seedbed.runs.trust import stored_experiment
from seedbed.runtime.install import how_to_install
from seedbed.runtime.paths import shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `inspect unroll`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    dump = actions.add_parser(
        "unroll",
        help="write one training batch as arrays and a picture",
        description="Collect one training batch with the learner's own parts, and write it to DIR: "
        "unroll.npz (arrays), README.txt (their meanings) and unroll.png (a few environments over "
        "time). A file of a run's quarantine/ is written as it is.",
    )
    add = dump.add_argument
    add(
        "source",
        metavar="EXPERIMENT|RUN_DIR|BATCH",
        help="YAML file, run with a checkpoint, or file of a run's quarantine/",
    )
    add("directory", metavar="DIR", type=Path, help="directory of the files")
    add("--updates", type=int, default=0, metavar="N", help="updates before the batch (default: 0)")
    add("--columns", type=int, default=3, metavar="E", help="environments drawn (default: 3)")
    add_set(dump)
    add_trust(dump)


def run(args: argparse.Namespace) -> None:
    """Write the files; their directory goes to stdout.

    Raises:
        SeedbedError: the experiment or the file is wrong, or the learner fails.
    """
    is_batch = args.source.endswith(".npz")
    dump = load_batch(Path(args.source)) if is_batch else _collect(args)
    write_unroll(dump, args.directory)
    title = f"{dump.title}: {dump.origin}"
    try:
        plot_unroll(dump.arrays, title, args.directory / "unroll.png", args.columns)
    except ImportError as error:
        print(f"inspect: no unroll.png ({error}): {how_to_install('plots')}", file=sys.stderr)
    emit(shown(args.directory))


def _collect(args: argparse.Namespace) -> UnrollDump:
    experiment, init_from = _source(args.source, args.set, args.trust)
    learner = experiment.learner
    backends.use(learner.backend, learner.deterministic, learner.device)
    # It imports Keras, so after its backend is fixed.
    from seedbed.services.learner.unroll_dump import collect_unroll

    return collect_unroll(experiment, init_from, args.updates)


def _source(source: str, overrides: list[str], trust: bool) -> tuple[Experiment, str | None]:
    if Path(source).is_file() and not source.endswith(".safetensors"):
        return load_experiment(source, overrides), None
    checkpoint = read_checkpoint(source)
    stored = stored_experiment(checkpoint, trust)
    return parse_experiment(dump_experiment(stored), overrides, "inspect"), source
