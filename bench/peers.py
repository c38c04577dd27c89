"""`peers`: Sample Factory, RLlib and Reverb beside Seedbed, in turn on the same cores.

`tools/peers/install.sh FOLDER` installs them, and `--peers FOLDER` says where. Of each turn a ratio
is of two figures that were measured one after the other.
"""

import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count, zip_longest
from pathlib import Path
from typing import Any

from bench.child import ROOT, Child, failed
from bench.command import TrainingRun
from bench.figures import Figures, beside, in_turn
from bench.plan import Plan, write_pong
from bench.report import Table
from seedbed.runtime.exit_codes import ExitCode, SeedbedError

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
TABLES = [
    Table(
        "training Pong with the Nature network on the same cores, in turn",
        "system | loss | env frames/s | Seedbed in float32, times | in bfloat16, times",
        "{name} | {loss} | {env_fps:,.0f} | {float32_times:.2f} | {bfloat16_times:.2f}",
        lambda part: part.get("frames", ()),
    ),
    Table(
        "replay in another process, in memory, items a second, in turn",
        "content | Reverb: in | out | Seedbed, shared memory: in | times | out | times | "
        "TCP: in | times | out | times",
        "{content} | {reverb_insert_per_s:,.0f} | {reverb_sample_per_s:,.0f} | "
        "{shared_memory_insert_per_s:,.0f} | {shared_memory_insert_times:.2f} | "
        "{shared_memory_sample_per_s:,.0f} | {shared_memory_sample_times:.2f} | "
        "{tcp_insert_per_s:,.0f} | {tcp_insert_times:.2f} | "
        "{tcp_sample_per_s:,.0f} | {tcp_sample_times:.2f}",
        lambda part: part.get("replay", ()),
    ),
]


def peers(plan: Plan) -> dict[str, Any]:
    """Measure what is installed: frames a second of training Pong, and items a second of replay."""
    installed = [name for name in (*TRAININGS, REVERB) if _python(plan, name).exists()]
    if not installed:
        raise SeedbedError(
            ExitCode.USAGE,
            f"no peer is installed in {_folder(plan)}: "
            "tools/peers/install.sh FOLDER, then --peers FOLDER",
        )
    results: dict[str, Any] = {}
    if trainings := [name for name in installed if name in TRAININGS]:
        results["frames"] = _frames(plan, trainings)
    if REVERB in installed:
        results["replay"] = [_replay(plan, content) for content in ("sequences", "transitions")]
    return results


def _folder(plan: Plan) -> Path:
    return plan.pick(Path("peers"), Path("peers"), "peers")


def _python(plan: Plan, name: str) -> Path:
    return _folder(plan) / name / "bin" / "python"


# --- training ----------------------------------------------------------------------------------


def _frames(plan: Plan, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row a system: its frames a second, and how many times as many ours makes."""
    sides: dict[str, Callable[[], Figures]] = {}
    numbers = count()
    for precision, name in zip_longest(PRECISIONS, names):
        if name:
            sides[name] = partial(_peer_fps, plan, name)
        sides[precision] = partial(_seedbed_fps, plan, precision, numbers)

    def compare(own: Figures, turn: Mapping[str, Figures]) -> Figures:
        return {f"{p}_times": turn[p]["env_fps"] / own["env_fps"] for p in PRECISIONS}

    found = beside(plan.runs, sides, compare)
    return [
        {"name": name, "loss": LOSSES[name], **found[name]}
        for name in (*names, *PRECISIONS)
        if name in found
    ]


def _seedbed_fps(plan: Plan, precision: str, numbers: Iterator[int]) -> Figures:
    path = write_pong(plan, f"peers-{precision}", network=NETWORK, precision=precision)
    _wait_until_idle()
    with TrainingRun(path, plan.folder / f"peers-{precision}-{next(numbers)}") as training:
        training.wait_for_updates(1)
        time.sleep(plan.training_warm_up_s)
        before, after = training.window(plan.training_window_s)
    frames = after["counters"]["trained_frames"] - before["counters"]["trained_frames"]
    return {"env_fps": frames / (after["read_at"] - before["read_at"])}


def _peer_fps(plan: Plan, name: str) -> Figures:
    script, pattern = TRAININGS[name]
    _wait_until_idle()
    with _Counts([str(_python(plan, name)), str(SCRIPTS / script)], pattern, plan.folder) as counts:
        counts.wait_for(1, FIRST_COUNT_S)
        time.sleep(plan.training_warm_up_s)
        # From count to count, since a line comes only every few seconds.
        first = counts.next()
        time.sleep(plan.training_window_s)
        last = counts.next()
    return {"env_fps": ACTION_REPEAT * (last[1] - first[1]) / (last[0] - first[0])}


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
    ways = {"shared_memory_": "shared memory", "tcp_": "tcp"}

    def shard(way: str) -> Figures:
        with Child(
            "replay.service:Shards", plan.folder, f"peers-{content}-{way}",
            sequences=plan.pick(1024, 128), rounds=plan.pick(40, 2), runs=1,
        ) as child:  # fmt: skip
            found = child.ask(
                "measure", REPLAY_LONGEST_S, content=content, kept_in="memory", way=way
            )
        return {
            f"{name}_per_s": found[f"{name}_sequences_per_s"]["median"]
            for name in ("insert", "sample")
        }

    sides: dict[str, Callable[[], Figures]] = {"reverb_": partial(_reverb, plan, content)}
    sides |= {prefix: partial(shard, way) for prefix, way in ways.items()}
    ratios = {
        f"{prefix}{name}_times": (f"{prefix}{name}_per_s", f"reverb_{name}_per_s")
        for prefix in ways
        for name in ("insert", "sample")
    }
    return {"content": content, **in_turn(plan.runs, sides, **ratios)}


def _reverb(plan: Plan, content: str) -> Figures:
    _wait_until_idle()
    command = [str(_python(plan, REVERB)), str(SCRIPTS / "reverb_items.py"), content]
    log = plan.folder / f"reverb-{content}.log"
    output = _output([*command, f"{plan.pick(5.0, 0.5):g}"], log)
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
