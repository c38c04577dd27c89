"""Findings of `seedbed check machine`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from seedbed.runtime.exit_codes import ExitCode


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        check: name of the check, one word.
        level: `fail` where a run will not start; `warn` where it will, but not well.
        message: the fact and its meaning.
        advice: what to do; empty where all is well.
        code: the exit code of a run that would fail.
    """

    check: str
    level: Literal["ok", "warn", "fail"]
    message: str
    advice: str = ""
    code: ExitCode = ExitCode.OK
