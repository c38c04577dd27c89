"""The `seedbed` command: one module a subcommand, imported only when it is used."""

import argparse
import importlib.util
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from seedbed.runtime.exit_codes import HELP, ExitCode, SeedbedError
from seedbed.runtime.signals import Terminated
from seedbed.runtime.threads import left_behind

# Modules and their lines of `seedbed --help`. Each has add_arguments(parser) and run(args), which
# returns an exit code, or None where all went well. Its docstring is the text of its `--help`.
COMMANDS = {
    "train": "train an experiment on this machine: one learner and its actors",
    "learner": "run the learner alone, as in a container",
    "actor": "run one actor alone, as in a container",
    "replay": "run one replay shard, for learners with `storage: remote`",
    "tokens": "make the token files of a release",
    "cost": "price a release on Kubernetes, and end it when it is over",
    "deploy": "install an experiment on Kubernetes, with what it costs an hour",
    "evaluate": "play a trained policy and print its returns",
    "analyze": "measure how far the learners of a run were from each other",
    "status": "show the progress, the bottleneck and the cost of a run",
    "export": "write a policy that plain Keras loads",
    "bench": "measure where the time goes",
    "check": "check a machine, an environment or a learner",
    "config": "print the schema, the reference, or a resolved experiment",
    "inspect": "write one training batch as arrays and pictures",
}
# Commands of 0.1, with their names of today.
RENAMED = {
    "doctor": "check machine",
    "env": "check env",
    "try": "check learner",
    "report": "analyze",
    "debug": "inspect",
}
# And options, of whatever command.
RENAMED_OPTIONS = {"--stay": "--linger", "--environments": "--num-envs"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand; return the exit code.

    A failure prints the cause and the exit code as the last two lines on stderr.

    Args:
        argv: Arguments without the program; None takes them from the command line.
    """
    before = len(left_behind)
    code = _main(argv)
    if any(thread.is_alive() for thread in left_behind[before:]):
        # The interpreter's own end would wait for some threads, and break others.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _main(argv: Sequence[str] | None) -> int:
    argv = sys.argv[1:] if argv is None else list(argv)
    parser = argparse.ArgumentParser(
        prog="seedbed", description="SEED RL for Kubernetes: central inference, cheap actors."
    )
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    if argv and argv[0] in RENAMED:
        parser.error(f"`seedbed {argv[0]}` of 0.1 is `seedbed {RENAMED[argv[0]]}` now")
    for word in argv:
        if word in RENAMED_OPTIONS:
            parser.error(f"`{word}` of 0.1 is `{RENAMED_OPTIONS[word]}` now")
    if argv and argv[0] in COMMANDS:  # import only what runs: an actor has no TensorFlow
        if argv[0] == "bench" and importlib.util.find_spec("bench") is None:
            return _fail(
                ExitCode.USAGE,
                "seedbed bench is in the source tree and not in the package: run "
                "`python -m seedbed.cli.main bench` in a checkout of Seedbed",
            )
        name = "bench.main" if argv[0] == "bench" else f"seedbed.cli.{argv[0]}"
        module = importlib.import_module(name)
        parser_of_command = subparsers.add_parser(argv[0], description=module.__doc__)
        module.add_arguments(parser_of_command)
    else:
        for name, text in COMMANDS.items():
            subparsers.add_parser(name, help=text)
        parser.parse_args(argv)  # ends the process, unless the command comes after `--`
        parser.error(f"the first word is the command, not {argv[0]!r}")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        # Find `module:name` parts of the user.
        sys.path.insert(0, str(Path.cwd()))
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname).1s %(name)s: %(message)s"
    )
    try:
        args = parser.parse_args(argv)
        args.argv = argv
        code = module.run(args)
        sys.stdout.flush()
        return int(code or ExitCode.OK)
    except SeedbedError as error:
        return _fail(error.code, str(error))
    except BrokenPipeError:
        # `| head` has ended; Python would report the closed pipe again when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(ExitCode.OK)
    except Terminated:
        return _fail(ExitCode.TERMINATED, "SIGTERM")
    except KeyboardInterrupt:
        return _fail(ExitCode.INTERRUPTED, "interrupted")
    except Exception as error:
        traceback.print_exc()
        return _fail(ExitCode.INTERNAL, f"{type(error).__name__}: {error}")


def _fail(code: ExitCode, cause: str) -> int:
    text = f"seedbed: {cause}\nseedbed: exit code {int(code)} ({code.name}): {HELP[code]}"
    print(text, file=sys.stderr)
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
