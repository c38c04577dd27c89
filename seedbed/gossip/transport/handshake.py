"""Check of the Hello of every call between learners."""

import logging
from collections.abc import Sequence

import grpc

from seedbed.gossip.parameters import ParameterLayout
from seedbed.rpc.streams import StreamRejected
from seedbed.runtime.peer_log import PeerLog
from seedbed.runtime.text import printable
from seedbed.v1 import gossip_pb2 as wire

log = logging.getLogger(__name__)

_warnings = PeerLog(log)


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


def check_hello(
    own: wire.GossipHello, theirs: wire.GossipHello, layout: ParameterLayout, is_protected: bool
) -> None:
    """Check that a peer fits this learner.

    Args:
        own: Hello of this learner.
        theirs: Hello of the peer.
        layout: Layout of this learner's parameters.
        is_protected: Whether the peer has shown a credential. Without one it is not told how the
            networks differ, because enough refusals would tell the whole network.

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
            f"experiment {own.experiment!r} here and {printable(theirs.experiment)!r} there: "
            "gossip.addresses name learners of one experiment"
        )
    if theirs.learners != own.learners or not own.rank != theirs.rank < own.learners:
        raise PeerRejected(
            f"learner {own.rank} of {own.learners} here, and {theirs.rank} of {theirs.learners} "
            "there: give all of them the same gossip.replicas, and each a rank of its own",
            is_transient=True,
        )
    if difference := _difference(layout, theirs.parameters):
        if not is_protected:
            text = "learner %d has another network: %s"
            _warnings.warning("network", text, theirs.rank, difference)
            difference = (
                f"another network here than there, and the log of learner {own.rank} names the "
                "first difference"
            )
        raise PeerRejected(f"{difference}: learners that gossip have the same network")


def _difference(layout: ParameterLayout, theirs: Sequence[int]) -> str:
    """Describe the first difference of a peer's parameters; empty if there is none."""
    digests = layout.digests()
    for name, shape, here, there in zip(layout.names, layout.shapes, digests, theirs, strict=False):
        if here != there:
            return f"{name} {list(shape)} here is not there, or has another shape or place"
    if len(digests) != len(theirs):
        return f"{len(digests)} parameters here and {len(theirs)} there"
    return ""
