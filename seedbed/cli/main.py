"""The `seedbed` command: one module a subcommand, imported only when it is used."""

import argparse
import contextlib
import importlib.util
import io
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from difflib import get_close_matches
from importlib.metadata import version
from pathlib import Path

from seedbed.runtime import streams
from seedbed.runtime.exit_codes import HELP, ExitCode, SeedbedError
from seedbed.runtime.guard import leaving
from seedbed.runtime.paths import absolute, started_here
from seedbed.runtime.shortage import cure, is_shortage
from seedbed.runtime.signals import Terminated, interrupt_on_sigint
from seedbed.runtime.terminal import log_to_stderr, print_lines
from seedbed.runtime.threads import left_behind

# Modules and their lines of `seedbed --help`. Each has add_arguments(parser) and run(args), which
# returns an exit code, or None where all went well. Its docstring is the text of its `--help`.
GROUPS = {
    "run": {
        "train": "train an experiment on this machine: one learner and its actors",
        "deploy": "install an experiment or a set on Kubernetes, with what it costs an hour",
        "learner": "run the learner alone, as in a container",
        "actor": "run one actor alone, as in a container",
        "replay": "run one replay shard, for learners with `storage: remote`",
        "sweep": "train a set of runs: values of settings, with several seeds each",
        "stop": "stop a run, a set of runs or a release with last checkpoints",
        "pause": "pause a release, or a set of runs on a cluster",
        "resume": "resume what was paused",
        "suite": "compare the 57 games of Atari with the paper",
        "tokens": "make the token files of a release",
        "cost": "price a release on Kubernetes, and end it when it is over",
        "controller": "start and end the runs of a set on Kubernetes",
    },
    "look": {
        "list": "list runs and releases with state, progress, score and cost",
        "status": "show the progress, the bottleneck and the cost of a run",
        "logs": "print the logs of a release",
        "fetch": "bring the result of a release to this machine",
        "compare": "compare runs: which setting is better, and is it noise",
        "plot": "draw the learning curves of one run or of several",
        "table": "print speeds, costs and latencies beside the SEED paper's",
        "evaluate": "play a trained policy and print its returns",
        "analyze": "measure how far the learners of a run were from each other",
        "inspect": "write one training batch as arrays and pictures",
        "export": "write a policy that plain Keras loads",
    },
    "prepare": {
        "init": "write an experiment of an environment, to turn its settings",
        "check": "check a machine, an environment or a learner",
        "config": "print the schema, the reference, or a resolved experiment",
        "bench": "measure where the time goes",
        "completion": "print the completion of bash, zsh or fish",
    },
}
# Commands that run the code of a user's environment, network or agent.
RUNS_OTHER_CODE = (
    *("train", "learner", "actor", "sweep", "suite", "evaluate", "inspect", "export"),
    *("init", "check"),
)
# Those that a supervisor, or Kubernetes, starts again after a crash.
RESTARTED = ("learner", "actor")
COMMANDS = {name: text for group in GROUPS.values() for name, text in group.items()}
# Each with words that stand alone, `RUN` for a run directory.
EXAMPLES = {
    "train": "train cartpole-vtrace --set learner.batch_size=32 --run-dir runs/wide",
    "deploy": "deploy pong-vtrace --profile laptop --dry-run",
    "learner": "learner cartpole-vtrace --listen 0.0.0.0:8470 --token-file tokens/learner",
    "actor": "actor cartpole-vtrace --learner HOST:8470 --token-file tokens/actor",
    "replay": "replay --sequences 100000 --listen 0.0.0.0:8480 --token-file tokens/shard",
    "sweep": "sweep cartpole-vtrace --set learner.optimizer.learning_rate=1e-3,3e-3 --seeds 3",
    "stop": "stop runs/cartpole-vtrace",
    "pause": "pause pong-vtrace",
    "resume": "resume pong-vtrace",
    "suite": "suite table sweeps/atari57",
    "tokens": "tokens tokens",
    "cost": "cost --help",
    "controller": "controller --help",
    "list": "list runs",
    "status": "status runs/cartpole-vtrace",
    "logs": "logs pong-vtrace --follow",
    "fetch": "fetch pong-vtrace runs/pong-vtrace",
    "compare": "compare sweeps/cartpole-vtrace --by learning_rate",
    "plot": "plot runs/seed-1 runs/seed-2 runs/seed-3 --out seeds.png",
    "table": "table 1 --actors spot --learner l4",
    "evaluate": "evaluate runs/cartpole-vtrace --episodes 20 --video cartpole.mp4",
    "analyze": "analyze runs/cartpole-vtrace",
    "inspect": "inspect unroll runs/cartpole-vtrace batch",
    "export": "export runs/cartpole-vtrace policy",
    "init": "init CartPole-v1 --out cartpole.yaml",
    "check": "check env CartPole-v1",
    "config": "config show cartpole-vtrace --set learner.batch_size=32",
    "bench": "bench system --runs 1",
    "completion": "completion bash",
}
# Words of other programs, and what does the same here.
OTHER_WORDS = {
    "restart": "`seedbed train` resumes; --restart fresh begins anew",
    "continue": "`seedbed train` resumes, by the same command or with the run directory",
    "watch": "`seedbed status RUN_DIR` shows a run; `seedbed evaluate --video` films it",
    "play": "`seedbed evaluate RUN_DIR --video FILE.mp4` plays a policy",
    "enjoy": "`seedbed evaluate RUN_DIR --video FILE.mp4` plays a policy",
    "test": "`seedbed evaluate RUN_DIR` plays a policy; `make test` runs the tests",
    "ls": "`seedbed list` shows the runs",
    "kill": "`seedbed stop RUN_DIR` stops a run with a last checkpoint",
    "tune": "`seedbed sweep` trains every combination of some values",
    "grid": "`seedbed sweep` trains every combination of some values",
    "tensorboard": "`tensorboard --logdir runs` shows the curves of runs",
    "download": "`seedbed fetch` brings the result of a release here",
    "cp": "`seedbed fetch` brings the result of a release here",
    "serve": "`seedbed learner` serves actors",
    "install": "`seedbed deploy` installs an experiment on Kubernetes",
}


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
        leaving()
        os._exit(code)
    return code


def _main(argv: Sequence[str] | None) -> int:
    argv = sys.argv[1:] if argv is None else list(argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() != "utf-8":
            stream.reconfigure(errors="replace")  # an ASCII terminal shows ? for ≥
    parser = argparse.ArgumentParser(
        prog="seedbed",
        usage="seedbed COMMAND ...",
        description="SEED RL for Kubernetes: central inference, cheap actors.",
        epilog=_overview(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"seedbed {version('seedbed')}")
    subparsers = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, help=argparse.SUPPRESS, prog="seedbed"
    )
    if not argv:
        parser.print_help(sys.stderr)
        return int(ExitCode.USAGE)
    if argv and argv[0] in COMMANDS:  # import only what runs: an actor has no TensorFlow
        if argv[0] == "bench" and importlib.util.find_spec("bench") is None:
            return _fail(
                ExitCode.USAGE,
                "seedbed bench is in the source tree and not in the package: run "
                "`python -m seedbed.cli.main bench` in a checkout of Seedbed",
            )
        name = "bench.main" if argv[0] == "bench" else f"seedbed.cli.{argv[0]}"
        module = importlib.import_module(name)
        parser_of_command = subparsers.add_parser(
            argv[0],
            description=module.__doc__,
            epilog=f"example:\n  seedbed {EXAMPLES[argv[0]]}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(parser_of_command)
    else:
        if argv[0] in OTHER_WORDS:
            parser.error(f"there is no command {argv[0]!r}: {OTHER_WORDS[argv[0]]}")
        near = get_close_matches(argv[0], COMMANDS, 2, 0.5)
        if near and not argv[0].startswith("-"):
            meant = " or ".join(f"`seedbed {name}`" for name in near)
            parser.error(f"there is no command {argv[0]!r}: did you mean {meant}?")
        for name, text in COMMANDS.items():
            subparsers.add_parser(name, help=text)
        parser.parse_args(argv)  # ends the process, unless the command comes after `--`
        parser.error(f"the first word is the command, not {argv[0]!r}")
    folder = str(started_here())
    if "" not in sys.path and folder not in sys.path:
        # Find `module:name` parts of the user.
        sys.path.insert(0, folder)
    log_to_stderr()
    try:
        args, unknown = parser.parse_known_args(argv)
        if unknown:
            hint = _settings_meant(unknown, args) if hasattr(args, "set") else ""
            parser_of_command.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        args.argv = argv
        if argv[0] in RUNS_OTHER_CODE:
            paths = {name: path for name, path in vars(args).items() if isinstance(path, Path)}
            vars(args).update({name: absolute(path) for name, path in paths.items()})
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # of the console script
            interrupt_on_sigint()
        code = module.run(args)
        sys.stdout.flush()
        return int(code or ExitCode.OK)
    except SeedbedError as error:
        return _fail(error.code, str(error))
    except BrokenPipeError:
        # `| head` has ended; Python would report the closed pipe again when it exits.
        streams.drop_result()
        return int(ExitCode.OK)
    except Terminated:
        return _fail(ExitCode.TERMINATED, "SIGTERM")
    except KeyboardInterrupt:
        return _fail(ExitCode.INTERRUPTED, "interrupted")
    except Exception as error:
        if isinstance(error, OSError) and is_shortage(error):
            return _fail(ExitCode.OUTPUT, f"{error}; {cure(error)}")
        traceback.print_exc()
        return _fail(ExitCode.INTERNAL, f"{type(error).__name__}: {error}")


def _settings_meant(unknown: Sequence[str], args: argparse.Namespace) -> str:
    """Return the `--set` that options which no command has may mean, such as `--seed 3`."""
    from seedbed.config.explain import DEFAULT_AGENT, settings_named
    from seedbed.config.load import load_experiment

    agent = DEFAULT_AGENT
    with contextlib.suppress(SeedbedError, AttributeError):
        agent = load_experiment(args.experiment).agent
    meant = []
    for word, after in zip(unknown, [*unknown[1:], ""], strict=True):
        option, equals, value = word.partition("=")
        if option.startswith("--") and (found := settings_named(option, agent)):
            given = value if equals else after if not after.startswith("--") else ""
            meant += [f"--set {key}={given or 'VALUE'}" for key in found[:2]]
    return f"; did you mean {' or '.join(meant)}?" if meant else ""


def _overview() -> str:
    """Return the list of commands, by groups."""
    width = max(map(len, COMMANDS))
    groups = [
        "\n".join([f"to {title}:", *(f"  {name:<{width}}  {text}" for name, text in group.items())])
        for title, group in GROUPS.items()
    ]
    return "\n\n".join([*groups, "`seedbed COMMAND --help` has the options and an example."])


def _fail(code: ExitCode, cause: str) -> int:
    text = f"seedbed: {cause}\nseedbed: exit code {int(code)} ({code.name}): {HELP[code]}"
    print_lines(text, "ERROR")
    return int(code)


if __name__ == "__main__":
    from seedbed.cli.__main__ import run as run_from_console

    run_from_console()
