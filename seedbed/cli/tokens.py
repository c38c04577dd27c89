"""Make one token file for each kind of process: actor, learner, shard and observer.

`--token-file` of a process names its file. Existing tokens are never replaced.
"""

import argparse
import os
import sys
from pathlib import Path

from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.tokens import Role, new_token_files


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `tokens DIR` and `tokens --secret NAME`."""
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("directory", nargs="?", type=Path, metavar="DIR", help="folder of the files")
    place.add_argument(
        "--secret",
        action="append",
        metavar="NAME",
        help="Kubernetes Secret to create in place of files; with --delete, repeated for several",
    )
    parser.add_argument("--namespace", metavar="NAMESPACE", help="namespace of the Secret")
    parser.add_argument(
        "--delete", action="store_true", help="delete each Secret (after its release has gone)"
    )


def run(args: argparse.Namespace) -> None:
    """Write the files, or create or delete the Secret."""
    if args.secret is None:
        _write_files(args.directory)
        return
    names = ", ".join(args.secret)
    if not args.namespace:
        raise SeedbedError(ExitCode.USAGE, f"--secret {names} needs --namespace")
    if len(args.secret) > 1 and not args.delete:
        raise SeedbedError(ExitCode.USAGE, f"--secret {names}: one Secret holds the tokens")
    from seedbed.services.cost.token_secret import create_secret, delete_secret

    change = delete_secret if args.delete else create_secret
    for name in args.secret:
        change(name, args.namespace)


def _write_files(directory: Path) -> None:
    """Write one file a role, which only this user can read.

    Raises:
        SeedbedError: USAGE: the folder has such files, or files of another kind.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if there := [role for role in Role if (directory / role).exists()]:
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
    for role, text in new_token_files().items():
        descriptor = os.open(directory / role, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        print(directory / role)
    text = "these are secrets: whoever has a file may act as its role; give each process its own"
    tree = next((each for each in directory.resolve().parents if (each / ".git").exists()), None)
    if tree is not None:
        text += f", and keep {directory} out of git: it lies in the work tree {tree}"
    print(text, file=sys.stderr)
