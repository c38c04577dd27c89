"""A process with two gossip transports, one of each topology, to be attacked.

`python -m tests.storm.gossip_host FOLDER PORT --token-file FILE --tls DIR` prints `ready`, and runs
until it is killed. Gossip is at a unix socket in FOLDER, with tokens; all-reduce is at PORT, with
certificates as well.
"""

from __future__ import annotations

import argparse
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np

from seedbed.cli.arguments import add_credentials, credentials_of
from seedbed.config import parse_experiment
from seedbed.gossip.membership import Membership
from seedbed.gossip.parameters import ParameterLayout
from seedbed.gossip.transport.transport import GossipTransport
from seedbed.rpc.credentials import Credentials
from seedbed.runtime.threads import Threads
from seedbed.runtime.tokens import Role
from seedbed.v1.gossip_pb2 import Member
from tests.storm.judge_gossip import EXPERIMENT, LEARNERS, PARAMETERS

LAYOUT = ParameterLayout(tuple(PARAMETERS), tuple(map(tuple, PARAMETERS.values())))


def whole_state() -> Future[dict[str, Any]]:
    state: Future[dict[str, Any]] = Future()
    state.set_result({"arrays": np.zeros(100, np.float32)})
    return state


def start(topology: str, address: str, folder: Path, credentials: Credentials) -> None:
    """Serve as rank 0 of a team whose other learners are not there."""
    peers = [f"unix:{folder}/{topology}-{rank}" for rank in range(1, LEARNERS)]
    settings = {"replicas": LEARNERS, "addresses": [address, *peers], "topology": topology}
    config = parse_experiment(
        f"name: {EXPERIMENT}\nenvironment: {{id: CartPole-v1}}\nagent: vtrace\ngossip: {settings!r}"
    )
    membership = Membership(0, LEARNERS, 20.0)
    transport = GossipTransport(
        config, membership, LAYOUT, Threads(), credentials, Member, whole_state
    )
    transport.start()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="tests.storm.gossip_host", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("port", type=int)
    add_credentials(parser)
    args = parser.parse_args()
    start("gossip", f"unix:{args.folder}/gossip-0", args.folder, credentials_of(args, Role.LEARNER))
    start("allreduce", f"127.0.0.1:{args.port}", args.folder, credentials_of(args, Role.LEARNER))
    print("ready", flush=True)
    threading.Event().wait()
