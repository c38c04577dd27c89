"""The controller of a set that stands for one on a cluster, in real time and for Prometheus.

`python -m tests.observability.broken_sets KIND FOLDER PORT` runs the controller of Seedbed over the
cluster in memory of the controller's tests, five seconds of it every five seconds, until it is
killed.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

from seedbed.runtime.http import MetricsServer
from seedbed.runtime.metrics import StatsRegistry
from seedbed.services.sets.metrics import SetMetrics
from seedbed.sets.needs import Limits
from tests.support.set_cluster import STEP_S, SetCluster, controller, spec

RATES = "learner.optimizer.learning_rate=1e-3,2e-3,3e-3"
FRAMES_A_SECOND = 10_000
QUOTA = "exceeded quota: rl, requested: cpu=2, used: cpu=8, limited: cpu=8"


def run_set(kind: str, folder: str, port: str) -> None:
    """Drive a set until the process is killed.

    Args:
        kind: Of `SETS_MADE`.
        folder: For the folder of the set and the volumes of the cluster.
        port: Of HTTP.
    """
    seconds, learners, dollars = {
        "set": (240, 2, 3.0),
        "set-refused": (240, 2, 3.0),
        "set-silent": (3600, 2, 30.0),
        # The second run finds no room for 0.9 dollars, and all together cost 2.7.
        "set-dear": (900, 2, 1.0),
        "set-hangs": (7200, 2, 30.0),
    }[kind]
    cluster = SetCluster(Path(folder) / "cluster")
    cluster.now = time.time()
    if kind == "set-refused":
        cluster.makes_pods = lambda name: QUOTA if name.endswith("-learner") else ""
    budget = {"dollars": dollars}
    wanted = spec(
        RATES, f"stop.env_frames={seconds * FRAMES_A_SECOND}", seeds=2, budget=budget,
        limits=Limits(learners),
    )  # fmt: skip
    one = controller(cluster, wanted, Path(folder) / "set")
    MetricsServer(int(port), StatsRegistry(SetMetrics("lab", one)), status=one.page.status)
    began, steps, waiting = time.monotonic(), 0, threading.Event()
    while True:
        one.reconcile()
        if kind != "set-hangs" or steps * STEP_S < 60:
            cluster.step()
        else:  # the learners are there, and train no more
            cluster.now += STEP_S
        steps += 1
        waiting.wait(max(0.0, began + steps * STEP_S - time.monotonic()))


if __name__ == "__main__":
    run_set(*sys.argv[1:])
