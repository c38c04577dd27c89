"""A process with two gossip transports, one of each topology, to be attacked.

`python -m tests.storm.gossip_host FOLDER` prints the address of each, and runs until it is killed.
"""

from __future__ import annotations

import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np

from seedbed.config import parse_experiment
from seedbed.gossip.membership import Membership
from seedbed.gossip.parameters import ParameterLayout
from seedbed.gossip.transport.transport import GossipTransport
from seedbed.rpc.credentials import PLAIN
from seedbed.runtime.threads import Threads
from seedbed.v1.gossip_pb2 import Member
from tests.storm.judge_gossip import EXPERIMENT, LEARNERS, PARAMETERS

LAYOUT = ParameterLayout(tuple(PARAMETERS), tuple(map(tuple, PARAMETERS.values())))


def whole_state() -> Future[dict[str, Any]]:
    state: Future[dict[str, Any]] = Future()
    state.set_result({"arrays": np.zeros(100, np.float32)})
    return state


def start(folder: Path, topology: str) -> None:
    """Serve as rank 0 of a team whose other learners are not there."""
    addresses = [f"unix:{folder}/{topology}-{rank}" for rank in range(LEARNERS)]
    settings = {"replicas": LEARNERS, "addresses": addresses, "topology": topology}
    config = parse_experiment(
        f"name: {EXPERIMENT}\nenvironment: {{id: CartPole-v1}}\nagent: vtrace\ngossip: {settings!r}"
    )
    transport = GossipTransport(
        config, Membership(0, LEARNERS, 20.0), LAYOUT, Threads(), PLAIN, Member, whole_state
    )
    transport.start()


if __name__ == "__main__":
    for kind in ("gossip", "allreduce"):
        start(Path(sys.argv[1]), kind)
    print("ready", flush=True)
    threading.Event().wait()
