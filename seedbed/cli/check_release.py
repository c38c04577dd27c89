"""Check a release on a cluster: what keeps its pods from working, and what to do.

Reads with kubectl and changes nothing.
"""

import argparse
import json

from seedbed.cli.arguments import add_namespace
from seedbed.cli.output import emit
from seedbed.deploy.release_checks import examine
from seedbed.deploy.release_view import ReleaseView
from seedbed.runtime.exit_codes import ExitCode
from seedbed.runtime.findings import lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `check release NAME`."""
    add = parser.add_argument
    add("release", metavar="NAME", help="name of the release")
    add_namespace(parser)
    add("--json", action="store_true", help="print one JSON object instead")


def run(args: argparse.Namespace) -> ExitCode:
    """Print the findings to stdout; return the exit code of the first failure, else 0.

    Raises:
        SeedbedError: CONFIG, there is no such release; DEPLOY, no cluster answers.
    """
    findings = examine(ReleaseView(args.release, args.namespace or "default"))
    failed = [finding for _, finding in findings if finding.level == "fail"]
    if args.json:
        rows = [{"check": check} | finding._asdict() for check, finding in findings]
        emit(json.dumps({"ok": not failed, "findings": rows}, indent=1, ensure_ascii=False))
    else:
        verdicts = f"{args.release} works", f"{args.release} does not work"
        emit("\n".join(lines(findings, *verdicts)))
    return failed[0].code if failed else ExitCode.OK
