"""What an environment starts ends with the process of ours that held it, whichever is killed."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

from tests.support.processes import Process, parent
from tests.support.waiting import wait_for

ENDED_S = 10.0
ENVIRONMENT = '''
import os, pathlib, subprocess
import gymnasium, numpy as np

class Simulated(gymnasium.Env):
    """Starts a simulator, which inherits every stream, and a daemon; ends neither."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, folder):
        simulator = subprocess.Popen(["sleep", "1000"]).pid
        command = "setsid sleep 1000 >/dev/null 2>&1 & echo $!"
        daemon = subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, text=True).stdout
        pathlib.Path(folder, f"{os.getpid()}.{simulator}.{int(daemon)}").touch()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(2, np.float32), 1.0, self.steps >= 20, False, {}
'''
EXPERIMENT = """
name: simulated
environment: {id: "simulated:Simulated", kwargs: {folder: FOLDER}}
actor: {envs_per_group: 2, groups: 1, processes: 1, workers: 2}
learner: {network: mlp, frame_stack: 1, unroll_length: 10, batch_size: 8, backend: jax}
evaluation: {at_end: false}
"""


def gone(pid: int) -> bool:
    return parent(pid) is None


def are_gone(pids: list[int]) -> bool:
    return all(map(gone, pids))


def test_whichever_process_is_killed(tmp_path: Path) -> None:
    started = tmp_path / "started"
    started.mkdir()
    (tmp_path / "simulated.py").write_text(ENVIRONMENT)
    (tmp_path / "simulated.yaml").write_text(EXPERIMENT.replace("FOLDER", str(started)))

    def alive() -> dict[int, list[int]]:
        """The processes that environments have started, by the process that holds these."""
        found: dict[int, list[int]] = {}
        for file in started.iterdir():
            holder, *pids = map(int, file.name.split("."))
            found.setdefault(holder, []).extend(pid for pid in pids if not gone(pid))
        return {holder: pids for holder, pids in found.items() if pids}

    def workers() -> list[int]:
        """The two workers of the actor that runs, with their simulators."""
        wait_for(lambda: sum(not gone(pid) for pid in alive()) == 2, "there are two workers", 120)
        return [pid for pid in alive() if not gone(pid)]

    run = Process(tmp_path / "out", "train", "simulated.yaml", cwd=tmp_path)
    try:
        for above in range(4):  # a worker, its guard, the actor, its guard
            victim = worker = workers()[0]
            held = alive()[worker]
            for _ in range(above):
                above_it = parent(victim)
                assert above_it is not None
                victim = above_it
            os.kill(victim, signal.SIGKILL)
            wait_for(partial(are_gone, held), f"{held} are gone", ENDED_S)
            run.runs()
        workers()
        os.kill(run.pid, signal.SIGKILL)
        wait_for(lambda: not alive(), "nothing is left of the run", ENDED_S)
    finally:
        run.popen.kill()
        for pids in alive().values():
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
