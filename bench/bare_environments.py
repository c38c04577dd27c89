"""Child: two bare `AtariVectorEnv`s in two threads, stepped as fast as they go."""

import threading
import time
from typing import Any

import numpy as np

from bench.child import sleep_and_until
from seedbed.config import load_experiment
from seedbed.envs.atari import FastAtariVectorEnv

GROUPS = 2  # as an actor has


class Bare:
    """The very objects that an actor's groups step, with the same settings, and nothing around."""

    def __init__(self, experiment: str, num_envs: int, threads: int) -> None:
        config = load_experiment(experiment)
        self._num_envs = num_envs
        groups = [
            FastAtariVectorEnv(config.environment, threads, range(g, num_envs + g))
            for g in range(GROUPS)
        ]
        self._games = [group._games for group in groups]
        self._actions = np.random.default_rng(0).integers(
            0, groups[0].spec.actions, (997, num_envs), np.int32
        )
        for group in groups:
            group.reset()
            group._watchdog.close()

    def measure(self, seconds: float, warm_up_s: float) -> dict[str, Any]:
        """Environment steps, seconds and CPU seconds of a window in which all of them step."""
        steps = [0] * GROUPS
        stop = threading.Event()

        def play(index: int) -> None:
            step, actions = self._games[index].step, self._actions
            turn = 0
            while not stop.is_set():
                step(actions[turn % len(actions)])
                turn += 1
                steps[index] += self._num_envs

        threads = [threading.Thread(target=play, args=(i,)) for i in range(GROUPS)]
        for thread in threads:
            thread.start()
        time.sleep(warm_up_s)
        before, started, cpu = sum(steps), time.perf_counter(), time.process_time()
        sleep_and_until(seconds, lambda: sum(steps) > before)
        after, ended, cpu_s = sum(steps), time.perf_counter(), time.process_time() - cpu
        stop.set()
        for thread in threads:
            thread.join()
        return {"steps": after - before, "seconds": ended - started, "cpu_s": cpu_s}
