"""`peers`: Sample Factory, RLlib and Reverb beside Seedbed, in turn on the same cores.

`tools/peers/install.sh FOLDER` installs them, and `--peers FOLDER` says where. Of each turn a ratio
is of two figures that were measured one after the other.
"""

import json
import logging
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any

from bench.child import ROOT, Child, failed
from bench.command import TrainingRun
from bench.figures import series_of
from bench.plan import Plan, write_pong
from seedbed.runtime.exit_codes import ExitCode, SeedbedError

log = logging.getLogger(__name__)

SCRIPTS = ROOT / "tools" / "peers"
ACTION_REPEAT = 4
FIRST_COUNT_S = 240.0
IDLE_S = 20.0
NETWORK = "nature"
PRECISIONS = ("float32", "bfloat16")
# Script, and the count of time steps in what it prints.
TRAININGS = {
    "sample-factory": ("sample_factory_pong.py", re.compile(r"Samples: (\d+)")),
    "rllib": ("rllib_pong.py", re.compile(r"trained (\d+)")),
}
LOSSES = {"sample-factory": "PPO", "rllib": "V-trace", "float32": "V-trace", "bfloat16": "V-trace"}
REVERB = "reverb"
REPLAY_LONGEST_S = 600.0


def peers(plan: Plan) -> dict[str, Any]:
    """Measure what is installed: frames a second of training Pong, and items a second of replay."""
    installed = [
        name for name in (*TRAININGS, REVERB) if plan.peers and _python(plan, name).exists()
    ]
    if not installed:
        raise SeedbedError(
            ExitCode.USAGE,
            f"no peer is installed in {plan.peers or 'a folder that --peers names'}: "
            "tools/peers/install.sh FOLDER, then --peers FOLDER",
        )
    results: dict[str, Any] = {}
    if trainings := [name for name in installed if name in TRAININGS]:
        results["frames"] = _frames(plan, trainings)
    if REVERB in installed:
        results["replay"] = [_replay(plan, content) for content in ("sequences", "transitions")]
    return results


def _python(plan: Plan, name: str) -> Path:
    assert plan.peers is not None
    return plan.peers / name / "bin" / "python"


# --- training ----------------------------------------------------------------------------------


def _frames(plan: Plan, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row a system: its frames a second, and how many times as many ours makes."""
    turns: list[dict[str, float]] = []
    for number in range(plan.runs):
        turn = {}
        for precision, name in zip_longest(PRECISIONS, names):
            if name:
                try:
                    turn[name] = _peer_fps(plan, name)
                except SeedbedError as error:
                    log.error("%s is left out of turn %d: %s", name, number, error)
            turn[precision] = _seedbed_fps(plan, precision, number)
        turns.append(turn)
    rows = []
    for name in (*names, *PRECISIONS):
        figures = [
            {
                "env_fps": turn[name],
                **{f"{precision}_times": turn[precision] / turn[name] for precision in PRECISIONS},
            }
            for turn in turns
            if name in turn
        ]
        if not figures:
            log.error("no turn of %s has figures", name)
            continue
        rows.append({"name": name, "loss": LOSSES[name], **series_of(figures)})
    return rows


def _seedbed_fps(plan: Plan, precision: str, number: int) -> float:
    path = write_pong(plan, f"peers-{precision}", network=NETWORK, precision=precision)
    _wait_until_idle()
    with TrainingRun(path, plan.folder / f"peers-{precision}-{number}") as training:
        training.wait_for_updates(1)
        time.sleep(plan.system_warm_up_s)
        before = training.status()
        time.sleep(plan.system_window_s)
        after = training.status()
    frames: int = after["counters"]["trained_frames"] - before["counters"]["trained_frames"]
    seconds: float = after["read_at"] - before["read_at"]
    return frames / seconds


def _peer_fps(plan: Plan, name: str) -> float:
    script, pattern = TRAININGS[name]
    _wait_until_idle()
    with _Counts([str(_python(plan, name)), str(SCRIPTS / script)], pattern, plan.folder) as counts:
        counts.wait_for(1, FIRST_COUNT_S)
        time.sleep(plan.system_warm_up_s)
        # From count to count, since a line comes only every few seconds.
        first = counts.next()
        time.sleep(plan.system_window_s)
        last = counts.next()
    return ACTION_REPEAT * (last[1] - first[1]) / (last[0] - first[0])


class _Counts:
    """Counts that a process prints, in a session of its own that ends with the block."""

    def __init__(self, command: list[str], pattern: re.Pattern[str], folder: Path) -> None:
        self._log = folder / f"{Path(command[1]).stem}.log"
        self._command, self._pattern, self._folder = command, pattern, folder
        self._points: list[tuple[float, int]] = []
        self._changed = threading.Condition()
        self._ended = False

    def __enter__(self) -> "_Counts":
        self._process = subprocess.Popen(
            [*self._command, str(self._folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        threading.Thread(target=self._read, daemon=True).start()
        return self

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._log.open("w") as log:
            for line in self._process.stdout:
                log.write(line)
                log.flush()
                if found := self._pattern.search(line):
                    with self._changed:
                        self._points.append((time.perf_counter(), int(found[1])))
                        self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait_for(self, count: int, longest_s: float) -> None:
        """Wait until so many counts have come."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._points) >= count or self._ended, longest_s)
        if len(self._points) < count:
            how = "ended" if self._ended else f"counted nothing in {longest_s:g} s"
            raise failed(f"{self._command[1]} {how}", self._log)

    def next(self) -> tuple[float, int]:
        """Return the next time and count."""
        self.wait_for(len(self._points) + 1, FIRST_COUNT_S)
        return self._points[-1]

    def __exit__(self, *_: object) -> None:
        _kill_session(self._process.pid)
        self._process.wait()


def _kill_session(session: int) -> None:
    """Kill the processes of a session: Ray's leave the group, and not the session."""
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(ProcessLookupError):
            if os.getsid(int(path.name)) == session:
                os.kill(int(path.name), signal.SIGKILL)


def _wait_until_idle() -> None:
    """Wait, for a while, until nothing else takes the cores."""
    deadline = time.monotonic() + IDLE_S
    while time.monotonic() < deadline:
        before = _cpu_times()
        time.sleep(2)
        busy, total = (now - then for now, then in zip(_cpu_times(), before, strict=True))
        if busy < 0.05 * total:
            return


def _cpu_times() -> tuple[int, int]:
    """Return the busy and all ticks of the machine."""
    ticks = [int(one) for one in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


# --- replay ------------------------------------------------------------------------------------


def _replay(plan: Plan, content: str) -> dict[str, Any]:
    """Return items a second in and out, Reverb's and those of a shard, both in memory."""
    turns = []
    for number in range(plan.runs):
        _wait_until_idle()
        theirs = _reverb(plan, content)
        ours = {}
        for way in ("shared memory", "tcp"):
            with Child(
                "replay.service:Shards", plan.folder, f"peers-{content}-{way}-{number}",
                sequences=plan.replay_sequences, rounds=plan.peer_rounds, runs=1,
            ) as child:  # fmt: skip
                ours[way] = child.ask(
                    "measure", REPLAY_LONGEST_S, content=content, kept_in="memory", way=way
                )
        turn = {f"reverb_{name}": value for name, value in theirs.items()}
        for way, found in ours.items():
            for name in ("insert", "sample"):
                value = found[f"{name}_sequences_per_s"]["median"]
                key = f"{way.replace(' ', '_')}_{name}"
                turn |= {f"{key}_per_s": value, f"{key}_times": value / theirs[f"{name}_per_s"]}
        turns.append(turn)
    return {"content": content, **series_of(turns)}


def _reverb(plan: Plan, content: str) -> dict[str, float]:
    command = [str(_python(plan, REVERB)), str(SCRIPTS / "reverb_items.py"), content]
    log = plan.folder / f"reverb-{content}.log"
    output = _output([*command, f"{plan.peer_seconds:g}"], log)
    try:
        figures: dict[str, float] = json.loads(output.splitlines()[-1])
    except (IndexError, ValueError):
        raise failed(f"{' '.join(command)} printed no figures", log) from None
    return figures


def _output(command: list[str], log: Path) -> str:
    """Run a command in a session of its own; return what it printed, and end all it has begun."""
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        ) as process,
    ):
        try:
            return process.communicate(timeout=REPLAY_LONGEST_S)[0]
        finally:
            _kill_session(process.pid)
