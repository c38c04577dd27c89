"""Reasons to reject an actor, each with both numbers and what to do."""

import grpc

from seedbed.rpc.streams import StreamRejected
from seedbed.rpc.versions import ERROR_KEY
from seedbed.runtime.text import printable
from seedbed.v1 import inference_pb2 as wire


class ActorRejected(StreamRejected):
    """Message of an actor that does not fit. Ends the stream of that actor only.

    Attributes:
        field: the field that does not fit.
        expected: what this learner accepts.
        received: what the actor sent.
        advice: what to do.
    """

    def __init__(self, field: str, expected: object, received: object, advice: str) -> None:
        self.field, self.advice = field, advice
        self.expected, self.received = str(expected), printable(received)
        super().__init__(f"{field}: expected {expected}, received {self.received}; {advice}")
        detail = wire.StreamError(
            field=field, expected=self.expected, received=self.received, advice=advice
        )
        self.metadata = ((ERROR_KEY, detail.SerializeToString()),)


class InvalidStep(ActorRejected):
    """Step, or another message, that does not follow the protocol."""


class NoCapacity(ActorRejected):
    """More environments than free slots. The actor tries again, because others may leave."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class SpecMismatch(ActorRejected):
    """Hello of another environment, of other sizes, or of another release."""

    def __init__(self, field: str, expected: object, received: object, advice: str) -> None:
        super().__init__(field, expected, received, advice)
        if field in ("protocol_version", "environment"):
            self.code = grpc.StatusCode.FAILED_PRECONDITION
