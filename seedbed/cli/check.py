"""Check a machine, an environment, a learner or a release, and say what to do."""

import argparse

from seedbed.cli import check_env, check_learner, check_machine, check_release
from seedbed.runtime.exit_codes import ExitCode

_CHECKS = {
    "machine": check_machine,
    "env": check_env,
    "learner": check_learner,
    "release": check_release,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `check machine`, `check env`, `check learner` and `check release`."""
    parts = parser.add_subparsers(dest="part", required=True, metavar="|".join(_CHECKS))
    for name, module in _CHECKS.items():
        text = str(module.__doc__)
        module.add_arguments(parts.add_parser(name, help=text.split("\n")[0], description=text))


def run(args: argparse.Namespace) -> ExitCode | None:
    """Run the named check, and return its exit code.

    Raises:
        SeedbedError: as the check does.
    """
    code: ExitCode | None = _CHECKS[args.part].run(args)
    return code
