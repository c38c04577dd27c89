"""What `seedbed check machine` finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from seedbed.runtime.exit_codes import ExitCode


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        check: what was looked at, one word.
        level: `fail` means that it will not run; `warn` that it will, but not well.
        message: what was found and what it means.
        advice: what to do; empty where nothing is to be done.
        code: the exit code that a run would end with, for `fail`.
    """

    check: str
    level: Literal["ok", "warn", "fail"]
    message: str
    advice: str = ""
    code: ExitCode = ExitCode.OK
