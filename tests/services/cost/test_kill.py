"""The real meter is killed at every call to the API: it neither forgets nor doubles the bill, and
what is at zero stays there.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.meter_api import MeterApi, meter_api
from tests.support.waiting import wait_for

BEFORE = {"actor": 3, "replay": 2, "learner": 1}
AT_ZERO = dict.fromkeys(BEFORE, 0)
OVER = "stop.env_frames: 10 of 10"

# Imports once: a line of arguments starts a meter that reconciles without pauses.
NURSERY = """
import json, os, signal, sys
import seedbed.cli.main, seedbed.cli.cost
import seedbed.services.cost.cluster, seedbed.services.cost.last_resort
import seedbed.services.cost.meter
seedbed.services.cost.meter.POLL_INTERVAL_S = 0.01
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    child = os.fork()
    if not child:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        sys.exit(seedbed.cli.main.main(json.loads(line)))
    print(child, flush=True)
"""


class Nursery:
    """Starts meters."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def start(self, api: MeterApi, *more: str, kill: tuple[int, bool] | None = None) -> int:
        """Start a meter that is killed at a call, counted from now."""
        assert self._process.stdin
        assert self._process.stdout
        with api.changed:  # no call is answered before the victim is known
            api.kill = (len(api.calls) + kill[0], kill[1]) if kill else None
            print(json.dumps([*api.arguments, *more]), file=self._process.stdin, flush=True)
            api.victim = int(self._process.stdout.readline())
        return api.victim


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("meters")


@pytest.fixture(scope="module")
def meters(folder: Path) -> Iterator[Nursery]:
    process = subprocess.Popen(
        [sys.executable, "-c", NURSERY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=(folder / "log").open("w"),
        text=True,
        env={**os.environ, "KUBECONFIG": str(folder / "kubeconfig")},
    )
    with process:
        yield Nursery(process)
        process.kill()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def status(state: str, over: str | None) -> dict[str, Any]:
    counters = {"env_frames": 10, "dollars": 0.0}
    own = {"run_dir": "/runs/pong", "resumed_dollars": 0.0}
    return {"state": state, "over": over, "counters": counters, **own}


def is_at_zero(api: MeterApi) -> bool:
    return api.scales == AT_ZERO and ("finished" in api.state or "paused" in api.state)


def has_resumed(api: MeterApi) -> bool:
    return api.scales == BEFORE and "resumeReplicas" not in api.state


STORIES: dict[str, tuple[list[str], dict[str, str], Callable[[MeterApi], bool]]] = {
    "end": ([], {}, is_at_zero),
    "pause": (["--paused"], {}, is_at_zero),
    "resume": (
        [],
        {"paused": "value", "pausedAt": "then", "resumeReplicas": json.dumps(BEFORE)},
        has_resumed,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("story", STORIES)
def test_a_meter_that_is_killed_at_any_call_goes_on_where_it_was(
    story: str, folder: Path, meters: Nursery
) -> None:
    more, state, is_done = STORIES[story]
    # Six vCPUs of a dollar an hour ran for an hour before the first meter.
    with meter_api(folder, BEFORE, time.time() - 3600) as api:
        calls: list[str] = []

        def tell(kill: tuple[int, bool] | None) -> None:
            api.state.clear()
            api.state.update(state)
            api.started = time.time() - 3600
            for replicas in (AT_ZERO,) if state else (AT_ZERO, BEFORE):
                for component, number in replicas.items():
                    api.scale(component, number)
            api.polls = 0
            if story == "end":
                api.learner = [status("training", None), status("waiting", OVER),
                               status("finished", OVER)]  # fmt: skip
            first = len(api.calls)
            if kill:
                victim = meters.start(api, *more, kill=kill)
                wait_for(lambda: not is_alive(victim), f"the call {kill} comes")
            victim = meters.start(api, *more)
            api.until(lambda: is_done(api), f"killed at {kill}, {api.scales}, {api.state}")
            calls[:] = calls or api.calls[first:]
            if story != "resume":
                assert json.loads(api.state["resumeReplicas"]) == BEFORE, kill
                assert float(api.state["dollars"]) == pytest.approx(6.0, rel=0.1), kill
            if story != "resume" and kill in (None, (len(calls), True)):
                # A person scales it up.
                seen = len(api.calls)
                api.until(lambda: len(api.calls) > seen + 6, "it has seen zero")
                api.scale("learner", 1)
                api.until(lambda: api.scales == AT_ZERO, "it goes to zero again")
            os.kill(victim, signal.SIGKILL)
            wait_for(lambda: not is_alive(victim), "the meter is gone")

        tell(None)
        assert "GET pong-state" in calls
        for number, call in enumerate(calls, 1):
            tell((number, False))
            if call.startswith("PATCH"):
                tell((number, True))
