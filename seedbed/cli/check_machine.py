"""Check whether this machine can run an experiment, or any, and say what to do if not."""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from seedbed.cli import machine_checks, part_checks, precision_check
from seedbed.cli.arguments import add_experiment
from seedbed.cli.output import emit
from seedbed.config import Experiment, load_experiment
from seedbed.runtime.exit_codes import ExitCode
from seedbed.runtime.findings import Finding, lines

_VERDICTS = "this machine can run it", "this machine cannot run it yet"
Check = Callable[[], Iterable[Finding]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `check machine [EXPERIMENT]`."""
    add_experiment(parser, nargs="?")
    add = parser.add_argument
    add("--run-dir", default="runs", help="run directory to be (default: runs)")
    add("--port", type=int, action="append", default=[], help="TCP port to be free (repeatable)")
    add("--json", action="store_true", help="print one JSON object instead")


def run(args: argparse.Namespace) -> ExitCode:
    """Print the findings to stdout; return the exit code of the first failure, else 0.

    Raises:
        SeedbedError: CONFIG, the experiment is wrong.
    """
    experiment = load_experiment(args.experiment, args.set) if args.experiment else None
    print("check machine: the backends and environments take half a minute", file=sys.stderr)
    findings = examine(experiment, Path(args.run_dir), args.port)
    failed = [finding for _, finding in findings if finding.level == "fail"]
    if args.json:
        rows = [{"check": check} | finding._asdict() for check, finding in findings]
        emit(json.dumps({"ok": not failed, "findings": rows}, indent=1, ensure_ascii=False))
    else:
        emit("\n".join(lines(findings, *_VERDICTS)))
    return failed[0].code if failed else ExitCode.OK


def examine(
    experiment: Experiment | None, run_dir: Path, ports: Sequence[int]
) -> list[tuple[str, Finding]]:
    """Return the findings of every check by its name, in reading order.

    The checks run in parallel.
    """
    checks: dict[str, Check] = {
        "python": machine_checks.python,
        "cores": partial(machine_checks.cores, experiment),
        "disk": partial(machine_checks.disk, run_dir),
        "ports": partial(machine_checks.ports, experiment, ports),
        "precision": partial(precision_check.precision, experiment),
        "backend": partial(part_checks.backends, experiment),
        "environment": partial(part_checks.environments, experiment),
    }
    with ThreadPoolExecutor(len(checks)) as pool:
        results = zip(checks, pool.map(_guarded, checks.values()), strict=True)
        return [(name, finding) for name, findings in results for finding in findings]


def _guarded(check: Check) -> list[Finding]:
    try:
        return list(check())
    except Exception as error:  # the other checks count all the same
        message = f"this check itself failed: {type(error).__name__}: {error}"
        return [Finding("fail", message, "please report it", ExitCode.INTERNAL)]
