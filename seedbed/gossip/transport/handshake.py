"""First message of every stream between learners, and the check of a peer's."""

from __future__ import annotations

import secrets

import grpc

from seedbed.gossip.membership import Membership
from seedbed.gossip.parameters import ParameterLayout
from seedbed.rpc.streams import StreamRejected
from seedbed.rpc.versions import GOSSIP_PROTOCOL_VERSION
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


def make_hello(
    experiment: str, membership: Membership, layout: ParameterLayout
) -> wire.GossipHello:
    """Return the hello of this process.

    Args:
        experiment: Name of the experiment.
        membership: Rank of this learner and number of learners.
        layout: Layout of the parameters.
    """
    return wire.GossipHello(
        protocol_version=GOSSIP_PROTOCOL_VERSION,
        experiment=experiment,
        rank=membership.rank,
        learners=membership.count,
        parameters=layout.to_wire(),
        incarnation=secrets.randbits(63),
    )


def check_hello(own: wire.GossipHello, theirs: wire.GossipHello, layout: ParameterLayout) -> None:
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
    if difference := layout.difference(theirs.parameters):
        raise PeerRejected(f"{difference}: learners that gossip have the same network")
