"""Signals that an environment sends to a process of Seedbed: refused in the call that sends them.

SIGTERM from an environment would pass as one of a person or of Kubernetes, and stop the run as if
that was meant. Code in C, and `signal.raise_signal`, raise no audit event and are not seen.
"""

import contextlib
import os
import sys
from types import FrameType
from typing import Any

from seedbed.envs.failures import STEP_RAISED, EnvironmentFault
from seedbed.runtime.guard import guards, signal_name

# Modules that call environments.
_CALLERS = {"seedbed.envs.gymnasium_env", "seedbed.envs.factory", "seedbed.envs.check"}
# This process, which a forked child inherits, the one above and its guards; empty without the hook.
_ours: list[int] = []


def refuse_own_signals() -> None:
    """Refuse signals of environments to this process, its guards and their groups, from now on.

    `os.kill` and its like then raise `EnvironmentFault`. Signals to other processes pass.
    """
    # The arguments of each are a target and the number of the signal.
    events = frozenset(("os.kill", "os.killpg", "signal.pthread_kill"))

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in events:  # a local name, which is there while the interpreter ends
            _refuse(event, *arguments)

    if not _ours:
        _ours.extend((os.getpid(), os.getppid(), *guards()))
        sys.addaudithook(hook)


def _refuse(event: str, target: int, number: int) -> None:
    if number and _is_from_environment() and _reaches_ours(event, target):
        text = f"it sends {signal_name(number)} to a process of Seedbed"
        raise EnvironmentFault(STEP_RAISED, f"{text}, by {event}({target}, {number})")


def _is_from_environment() -> bool:
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__") not in _CALLERS:
        frame = frame.f_back
    return frame is not None


def _reaches_ours(event: str, target: int) -> bool:
    if event == "signal.pthread_kill":  # a thread of this process
        return os.getpid() in _ours
    if event == "os.kill" and target > 0:
        return target in _ours
    if event == "os.kill" and target == -1:  # all processes
        return True
    group = abs(target) or os.getpgrp()
    groups = set[int]()
    for pid in _ours:
        with contextlib.suppress(ProcessLookupError):
            groups.add(os.getpgid(pid))
    return group in groups
