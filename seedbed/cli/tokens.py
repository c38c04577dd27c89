"""Make one token file for each kind of process: actor, learner, shard and observer.

`--token-file` of a process names its file. Existing tokens are never replaced. With --learners each
learner of a run has a file of its own, learner-0 and so on, with the key of its rank.
"""

import argparse
import os
import sys
from pathlib import Path

from seedbed.cli.arguments import positive
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.tokens import new_token_files

MOST_LEARNERS = 1000  # whose digests a Secret of Kubernetes, of 1 MiB, holds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `tokens DIR`."""
    parser.add_argument("directory", type=Path, metavar="DIR", help="folder of the files")
    text = "learners of a run (gossip.replicas) that prove their ranks, at most 1000"
    parser.add_argument("--learners", type=positive, default=1, metavar="N", help=text)


def run(args: argparse.Namespace) -> None:
    """Write one file a role, which only this user can read.

    Raises:
        SeedbedError: USAGE: the folder has such files, or files of another kind.
    """
    directory: Path = args.directory
    directory.mkdir(parents=True, exist_ok=True)
    if args.learners > MOST_LEARNERS:
        raise SeedbedError(
            ExitCode.USAGE, f"--learners {args.learners}: at most {MOST_LEARNERS} have keys"
        )
    files = new_token_files(args.learners)
    if there := [name for name in files if (directory / name).exists()]:
        raise SeedbedError(
            ExitCode.USAGE,
            f"{directory} has token files of {', '.join(there)} already: name another folder, or "
            "delete them to make new ones",
        )
    if others := sorted(file.name for file in directory.iterdir()):
        raise SeedbedError(
            ExitCode.USAGE,
            f"{directory} has other files ({', '.join(others[:3])}{', ...' * (len(others) > 3)}): "
            "secrets are better kept in a folder of their own; name a new one, such as "
            f"{directory / 'tokens'}",
        )
    for name, text in files.items():
        descriptor = os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        print(directory / name)
    text = "these are secrets: whoever has a file may act as its role; give each process its own"
    tree = next((each for each in directory.resolve().parents if (each / ".git").exists()), None)
    if tree is not None:
        text += f", and keep {directory} out of git: it lies in the work tree {tree}"
    print(text, file=sys.stderr)
