"""Check that an environment fits, measure it, and give advice.

Settings go with --set, such as environment.kwargs='{level: 3}'.
"""

import argparse
import dataclasses
import json
from typing import TYPE_CHECKING

from seedbed.cli.arguments import add_set
from seedbed.cli.output import emit
from seedbed.config import parse_experiment
from seedbed.evaluation.atari_protocol import deviations
from seedbed.runtime.calls import KEY
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.terminal import print_lines
from seedbed.spec import ENVIRONMENTS

if TYPE_CHECKING:  # imports Gymnasium
    from seedbed.envs.check_report import Report

_MARKS = {"ok": "ok     ", "warning": "WARNING", "failed": "FAILED "}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `check env ID`."""
    add = parser.add_argument
    add(
        "id",
        metavar="ID",
        help="atari:, football:, lab: or vizdoom:NAME, a Gymnasium id, or module:factory",
    )
    add("--num-envs", type=int, default=32, help="environments that step together (default 32)")
    add("--seconds", type=float, default=5.0, help="seconds of a measurement (default 5)")
    text = "the same as --set actor.environment_timeout_s=S"
    add("--timeout", metavar="S", help=text)
    add_set(parser)
    add("--json", action="store_true", help="print the report as JSON on stdout")


def run(args: argparse.Namespace) -> ExitCode:
    """Print the report to stderr, and as JSON to stdout if `--json` is given.

    Returns:
        OK, or ENVIRONMENT if a check failed.

    Raises:
        SeedbedError: USAGE or CONFIG, an argument is wrong.
    """
    if not 1 <= args.num_envs <= ENVIRONMENTS or not args.seconds > 0:
        raise SeedbedError(
            ExitCode.USAGE,
            f"--num-envs {args.num_envs} must be 1 to {ENVIRONMENTS}, and --seconds "
            f"{args.seconds:g} more than 0",
        )
    text = json.dumps({"name": "check", "environment": {"id": args.id}})
    limit = [] if args.timeout is None else [f"{KEY}={args.timeout}"]
    experiment = parse_experiment(text, [*args.set, *limit], "check env")
    from seedbed.envs.check import check_environment

    environment = experiment.environment
    report = check_environment(
        environment,
        args.num_envs,
        args.seconds,
        print_lines,
        experiment.actor,
        getattr(experiment.builtin_options, "life_loss_ends", False),
        _show,
    )
    if environment.family == "atari":
        for line in deviations(environment) or ["every setting is that of the table"]:
            report.add("Table 9", line)
    _show(report)
    if args.json:
        emit(json.dumps({"ok": report.ok, **dataclasses.asdict(report)}))
    return ExitCode.OK if report.ok else ExitCode.ENVIRONMENT


def _show(report: "Report") -> None:
    width = max(len(check.name) for check in report.checks)
    print_lines("")
    for check in report.checks:
        print_lines(f"{_MARKS[check.result]}  {check.name:{width}}  {check.detail}")
    if speed := report.speed:
        print_lines(
            f"\nspeed    {speed['steps_per_second']:,.0f} steps/s on one thread, "
            f"{speed['cpu_seconds_per_step'] * 1e6:,.0f} µs of CPU a step, "
            f"{speed['cpus_used']:.2f} CPUs busy"
        )
        if "steps_per_second_2_threads" in speed:
            print_lines(
                f"         {speed['steps_per_second_2_threads']:,.0f} steps/s on two threads"
            )
        print_lines(
            f"message  {speed['message_bytes']:,.0f} bytes a step of the group, "
            f"{speed['megabytes_per_second']:.3g} MB/s at this speed"
        )
    if advice := report.advice:
        shape = () if report.spec is None else report.spec.observation.shape
        shipped = "pong-vtrace" if len(shape) == 3 else "cartpole-vtrace"
        print_lines(
            f"\nto learn    begin with the values of {shipped}, which learn: `seedbed config show "
            f"{shipped}`;\n"
            "            the number of environments changes the batch, and so what is learned"
        )
        print_lines(
            f"\nto be fast  actor: {{groups: {advice.groups}, envs_per_group: "
            f"{advice.environments}, threads: {advice.threads}}}\n"
            f"            {advice.cpus} CPU and {advice.memory_mib} MiB an actor, for about "
            f"{advice.steps_per_second:,.0f} steps/s while the learner keeps up"
        )
        for reason in advice.reasons:
            print_lines(f"            - {reason}")
