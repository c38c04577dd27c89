"""Check of the first message of every stream between learners."""

from __future__ import annotations

from collections.abc import Sequence

import grpc

from seedbed.rpc.streams import StreamRejected
from seedbed.v1 import gossip_pb2 as wire


class PeerRejected(StreamRejected):
    """A peer does not fit this learner.

    Attributes:
        is_transient: Whether the peer may fit soon, because the learners of a release are
            upgraded one after the other.
    """

    code = grpc.StatusCode.FAILED_PRECONDITION

    def __init__(self, reason: str, is_transient: bool = False) -> None:
        super().__init__(reason)
        self.is_transient = is_transient


def check_hello(own: wire.GossipHello, theirs: wire.GossipHello) -> None:
    """Check that a peer fits this learner.

    Raises:
        PeerRejected: The protocol, the experiment, the number of learners, the rank or the
            network differs.
    """
    if theirs.protocol_version != own.protocol_version:
        raise PeerRejected(
            f"gossip protocol {own.protocol_version} here and {theirs.protocol_version} "
            "there: run the same release",
            is_transient=True,
        )
    if theirs.experiment != own.experiment:
        raise PeerRejected(
            f"experiment {own.experiment!r} here and {theirs.experiment!r} there: "
            "gossip.addresses name learners of one experiment"
        )
    if theirs.learners != own.learners or not own.rank != theirs.rank < own.learners:
        raise PeerRejected(
            f"learner {own.rank} of {own.learners} here, and {theirs.rank} of {theirs.learners} "
            "there: give all of them the same gossip.replicas, and each a rank of its own",
            is_transient=True,
        )
    if difference := _difference(own.parameters, theirs.parameters):
        raise PeerRejected(f"{difference}: learners that gossip have the same network")


def _difference(own: Sequence[wire.Parameter], theirs: Sequence[wire.Parameter]) -> str:
    """Describe the first difference of two layouts; empty if there is none."""
    for here, there in zip(own, theirs, strict=False):
        if here.name != there.name:
            return f"parameter {here.name!r} here is {there.name!r} there"
        if here.shape != there.shape:
            return f"{here.name} has shape {list(here.shape)} here and {list(there.shape)} there"
    if len(own) != len(theirs):
        return f"{len(own)} parameters here and {len(theirs)} there"
    return ""
