"""Findings of a check, and the report that lists them."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from seedbed.runtime.exit_codes import ExitCode
from seedbed.runtime.formats import columns

_WORD = {"ok": "ok", "warn": "warn", "fail": "FAIL"}


class Finding(NamedTuple):
    """One line of a report.

    Attributes:
        level: `fail` where it does not work; `warn` where it does, but not well.
        message: the fact and its meaning.
        advice: what to do; empty where all is well.
        code: the exit code of a failure.
    """

    level: Literal["ok", "warn", "fail"]
    message: str
    advice: str = ""
    code: ExitCode = ExitCode.OK


Report = Sequence[tuple[str, Finding]]  # each with the name of its check


def lines(report: Report, good: str, bad: str) -> list[str]:
    """Return the lines of a report: each finding, the advice below it, and the verdict.

    Args:
        report: The findings.
        good: Verdict without a failure.
        bad: Verdict with one.
    """
    rows = []
    for check, finding in report:
        rows.append((_WORD[finding.level], check, finding.message))
        if finding.advice:
            rows.append(("", "", f"-> {finding.advice}"))
    levels = [finding.level for _, finding in report]
    verdict = bad if "fail" in levels else good
    summary = f"{verdict}: {levels.count('fail')} FAIL, {levels.count('warn')} warn"
    return [*columns(rows, "<<<").splitlines(), summary]
