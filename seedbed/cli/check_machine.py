"""Check whether this machine can run an experiment, or any, and say what to do if not."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path

from seedbed.cli import machine_checks, part_checks
from seedbed.cli.arguments import add_experiment
from seedbed.cli.finding import Finding
from seedbed.config import Experiment, load_experiment
from seedbed.runtime.exit_codes import ExitCode

_WORD = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}
Check = Callable[[], list[Finding]]


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
    findings = examine(experiment, Path(args.run_dir), args.port)
    failed = [finding for finding in findings if finding.level == "fail"]
    if args.json:
        rows = [asdict(finding) | {"code": int(finding.code)} for finding in findings]
        print(json.dumps({"ok": not failed, "findings": rows}, indent=1, ensure_ascii=False))
    else:
        print("\n".join(lines(findings)))
    return failed[0].code if failed else ExitCode.OK


def examine(experiment: Experiment | None, run_dir: Path, ports: Sequence[int]) -> list[Finding]:
    """Return the findings of every check, in reading order; the checks run in parallel."""
    checks: dict[str, Check] = {
        "python": machine_checks.python,
        "cores": partial(machine_checks.cores, experiment),
        "memory": machine_checks.memory,
        "disk": partial(machine_checks.disk, run_dir),
        "shm": machine_checks.shared_memory,
        "files": partial(machine_checks.open_files, experiment),
        "clock": machine_checks.clock,
        "ports": partial(machine_checks.ports, experiment, ports),
        "grpc": part_checks.grpc_loopback,
        "backend": partial(part_checks.backends, experiment),
        "environment": partial(part_checks.environments, experiment),
    }
    with ThreadPoolExecutor(len(checks)) as pool:
        running = {name: pool.submit(_guarded, name, check) for name, check in checks.items()}
        return [finding for future in running.values() for finding in future.result()]


def _guarded(name: str, check: Check) -> list[Finding]:
    try:
        return check()
    except Exception as error:  # the other checks count all the same
        return [
            Finding(
                name,
                "fail",
                f"this check itself failed: {type(error).__name__}: {error}",
                "please report it",
                ExitCode.INTERNAL,
            )
        ]


def lines(findings: Sequence[Finding]) -> list[str]:
    """Return the lines of the report: each finding, and the advice below it."""
    width = max(len(finding.check) for finding in findings)
    out = []
    for finding in findings:
        out.append(f"{_WORD[finding.level]}  {finding.check:<{width}}  {finding.message}")
        if finding.advice:
            out.append(f"{'':{width + 8}}-> {finding.advice}")
    counts = {level: sum(f.level == level for f in findings) for level in ("fail", "warn")}
    verdict = "this machine can run it" if not counts["fail"] else "this machine cannot run it yet"
    out.append(f"{verdict}: {counts['fail']} FAIL, {counts['warn']} warn")
    return out
