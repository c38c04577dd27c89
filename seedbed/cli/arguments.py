"""Arguments that several commands share."""

import argparse
import math
from collections.abc import Sequence

from seedbed.rpc.credentials import Credentials
from seedbed.rpc.tls import Tls
from seedbed.runtime.guard import is_guarded
from seedbed.runtime.paths import absolute
from seedbed.runtime.signals import end_with
from seedbed.runtime.tokens import TOKEN_FILE_VARIABLE, Role, Tokens, token_file


def add_credentials(parser: argparse.ArgumentParser, listens: bool = False) -> None:
    """Add `--token-file`, `--tls` and `--tls-release`, and `--insecure` for servers."""
    add = parser.add_argument
    text = f"tokens, one `ROLE SECRET` a line (default: {TOKEN_FILE_VARIABLE} of the environment)"
    add("--token-file", metavar="FILE", help=text)
    text = "mTLS with the tls.crt, tls.key and ca.crt in this folder, on both ends"
    add("--tls", metavar="DIR", help=text)
    text = "release that a peer's certificate must name (default: any of the authority)"
    add("--tls-release", default="", metavar="RELEASE.NAMESPACE", help=text)
    if listens:
        text = "serve every client that reaches the address, without credentials"
        add("--insecure", action="store_true", help=text)


def credentials_of(args: argparse.Namespace, role: Role) -> Credentials:
    """Read the tokens and certificates that `add_credentials` names.

    Args:
        args: Of a parser with `add_credentials`.
        role: Role of this process.

    Raises:
        SeedbedError: CONFIG, a file is missing or wrong.
    """
    file = token_file(args.token_file)
    tokens = Tokens(absolute(file)) if file else None
    return Credentials(
        role,
        tokens,
        Tls(absolute(args.tls)) if args.tls else None,
        args.tls_release,
        getattr(args, "insecure", False),  # servers only
    )


def credential_options(args: argparse.Namespace) -> list[str]:
    """Return the credential options of this command line, for a process that it starts.

    Args:
        args: Of a parser with `add_credentials`.
    """
    named = {"--token-file": args.token_file, "--tls": args.tls, "--tls-release": args.tls_release}
    given = [f"{option}={value}" for option, value in named.items() if value]
    return given + ["--insecure"] * getattr(args, "insecure", False)  # servers only


def finite(text: str) -> float:
    """Return a number that is neither infinite nor NaN.

    Raises:
        argparse.ArgumentTypeError: It is none.
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"{text!r} is no finite number")
    return number


def positive(text: str) -> int:
    """Return the integer of an option, at least 1.

    Raises:
        argparse.ArgumentTypeError: It is below 1.
    """
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is below 1")
    return value


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Add `--trust`, for commands that build what a checkpoint or a run directory names."""
    text = "import and call what the file names as module:attribute; it can run any code"
    parser.add_argument("--trust", action="store_true", help=text)


def add_parent(parser: argparse.ArgumentParser) -> None:
    """Add `--exit-with-parent`, for processes that Seedbed starts."""
    text = "end when the parent process PID ends, even by kill -9"
    parser.add_argument("--exit-with-parent", type=int, metavar="PID", help=text)


def exit_with_parent(args: argparse.Namespace) -> None:
    """Do as `--exit-with-parent` says; exit now where the parent has ended already.

    The process asks the kernel itself: a parent with gRPC's threads must not fork, as it would for
    a `preexec_fn`.

    Args:
        args: With the PID of the parent, or None.
    """
    if args.exit_with_parent is not None and not is_guarded():
        end_with(args.exit_with_parent)


def exit_with_parent_of(words: Sequence[str]) -> None:
    """Do as `--exit-with-parent` of a command line says, in the guard of the process."""
    if "--exit-with-parent" in words:
        end_with(int(words[words.index("--exit-with-parent") + 1]))


def add_experiment(parser: argparse.ArgumentParser, nargs: str | None = None) -> None:
    """Add the experiment and `--set`.

    Args:
        parser: The command's parser.
        nargs: `"?"` where the command does without an experiment, too.
    """
    parser.add_argument(
        "experiment",
        metavar="EXPERIMENT.yaml",
        nargs=nargs,
        help="a YAML file, or the name of a shipped experiment such as cartpole-vtrace",
    )
    add_set(parser)


def add_namespace(parser: argparse.ArgumentParser) -> None:
    """Add `--namespace` of a release."""
    text = "namespace of the release (default: default)"
    parser.add_argument("--namespace", "-n", metavar="NS", help=text)


def add_set(parser: argparse.ArgumentParser) -> None:
    """Add `--set`."""
    text = "override a key of the experiment (repeatable; the value is YAML)"
    parser.add_argument("--set", action="append", default=[], metavar="a.b=c", help=text)
