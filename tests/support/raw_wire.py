"""Streams that send arbitrary messages, and a proxy that loses messages."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import grpc
import grpc.aio
import numpy as np
from google.protobuf.message import Message

from seedbed.rpc import channels
from seedbed.rpc.hello import HELLO_KEY
from seedbed.rpc.local.addresses import socket_of
from seedbed.rpc.local.steps import StepStream
from seedbed.rpc.step_codec import Actions, Step
from seedbed.rpc.stream import StreamEnded
from seedbed.rpc.versions import (
    ERROR_KEY,
    OLDEST_PROTOCOL_VERSION,
    PROTOCOL_VERSION,
)
from seedbed.spec import FIRST
from seedbed.v1 import inference_pb2 as wire
from tests.support.null_model import ACTIONS, NAME, OBSERVATION

ACT = "/seedbed.v1.Inference/Act"


def hello(environments: int = 2, **changes: Any) -> wire.Hello:
    fields: dict[str, Any] = {
        "protocol_version": PROTOCOL_VERSION,
        "oldest_protocol_version": OLDEST_PROTOCOL_VERSION,
        "incarnation": 7,
        "actor": "test",
        "environment": NAME,
        "environments": environments,
        "observation": wire.ArraySpec(shape=OBSERVATION.shape, dtype=OBSERVATION.dtype),
        "actions": ACTIONS,
        "action_repeat": 1,
    }
    return wire.Hello(**{**fields, **changes})


def metadata_of(hello: Message | bytes | None) -> list[tuple[str, str | bytes]]:
    """Metadata of a call with this Hello, or with bytes in its place."""
    if hello is None:
        return []
    return [(HELLO_KEY, hello if isinstance(hello, bytes) else hello.SerializeToString())]


def step(sequence: int, environments: int = 2, **changes: Any) -> wire.ActorMessage:
    """Environment `i` sees `(sequence + i) % ACTIONS`, and gets one more as its action."""
    e = environments
    observation = np.zeros((e, *OBSERVATION.shape), OBSERVATION.dtype)
    observation[:, 0] = (sequence % ACTIONS + np.arange(e)) % ACTIONS
    fields: dict[str, Any] = {
        "sequence": sequence,
        "observation": observation.tobytes(),
        "reward": bytes(4 * e),
        "flags": bytes([0 if sequence else FIRST] * e),
    }
    return wire.ActorMessage(step=wire.Step(**{**fields, **changes}))


class Refused(Exception):
    """How a stream ended, and the StreamError of its trailing metadata."""

    def __init__(self, error: Any) -> None:
        super().__init__(f"{error.code().name}: {error.details()}")
        self.code: grpc.StatusCode = error.code()
        self.details: str = error.details()
        details = dict(error.trailing_metadata() or ()).get(ERROR_KEY)
        self.error = None if details is None else wire.StreamError.FromString(details)


class GrpcCall:
    """A call of Act over gRPC, whose messages may be any bytes."""

    def __init__(
        self, address: str, options: list[tuple[str, Any]] | None, timeout_s: float
    ) -> None:
        if options is None:
            self.channel = channels.channel(address)
        else:
            options = [*options, ("grpc.use_local_subchannel_pool", 1)]
            self.channel = grpc.insecure_channel(address, options=options)
        self._out: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        act = self.channel.stream_stream(
            ACT,
            request_serializer=bytes,
            response_deserializer=wire.LearnerMessage.FromString,
        )
        self._act = partial(act, iter(self._out.get, None), timeout=timeout_s)
        self._call: Any = None

    def begin(self, hello: wire.Hello | bytes | None) -> None:
        self._call = self._act(metadata=metadata_of(hello))

    def send(self, message: wire.ActorMessage | bytes) -> None:
        self._out.put(message if isinstance(message, bytes) else message.SerializeToString())

    def read(self) -> wire.LearnerMessage | None:
        try:
            return next(self._call)
        except StopIteration:
            return None
        except grpc.RpcError as error:
            raise Refused(error) from None

    def close(self) -> None:
        self._out.put(None)
        if self._call is not None:
            self._call.cancel()
        self.channel.close()


class LocalTransport:
    """The same through shared memory."""

    def __init__(
        self, address: str, options: list[tuple[str, Any]] | None, timeout_s: float
    ) -> None:
        assert options is None, "options are gRPC's"
        self._timeout_s = timeout_s
        self._path = socket_of(address)
        self.stream: StepStream | None = None

    def begin(self, hello: wire.Hello | bytes | None) -> None:
        assert self._path is not None
        self.stream = StepStream(self._path, metadata_of(hello), 1 << 20)

    def send(self, message: wire.ActorMessage | bytes) -> None:
        assert self.stream is not None
        if isinstance(message, bytes):
            self.send_packet(b"\x01" + message)  # a message, of bytes that may be none
        elif message.WhichOneof("message") == "step":
            self.stream.send(Step(*(getattr(message.step, name) for name in Step._fields)))
        else:
            self.stream.send(message)

    def send_packet(self, packet: bytes) -> None:
        assert self.stream is not None
        self.stream._socket.send(packet)

    def read(self) -> wire.LearnerMessage | None:
        assert self.stream is not None
        try:
            message = self.stream.receive(self._timeout_s)
        except grpc.RpcError as error:
            raise Refused(error) from None
        except StreamEnded:
            return None
        if isinstance(message, Actions):
            actions = wire.Actions(sequence=message.sequence, action=message.action)
            return wire.LearnerMessage(actions=actions)
        return message

    def close(self) -> None:
        if self.stream is not None:
            self.stream.close()


class Stream:
    """One Act stream, driven by hand. Every read has the call's deadline.

    Args:
        options: for the channel, in place of production's.

    Attributes:
        transport: over gRPC, or through shared memory.
    """

    transport: type[GrpcCall] | type[LocalTransport] = GrpcCall

    def __init__(
        self, address: str, options: list[tuple[str, Any]] | None = None, timeout_s: float = 60.0
    ) -> None:
        self._of = self.transport(address, options, timeout_s)
        self.sequence = 0
        self.environments = 2

    def begin(self, hello: wire.Hello | bytes | None) -> None:
        """Open the stream with a Hello, bytes that are none, or nothing in its metadata."""
        self._of.begin(hello)

    def send(self, message: wire.ActorMessage | bytes) -> None:
        self._of.send(message)

    def read(self) -> wire.LearnerMessage | None:
        """The next message; None when the stream has ended well.

        Raises:
            Refused: it has ended otherwise.
        """
        return self._of.read()

    def handshake(self, environments: int = 2, **changes: Any) -> wire.Welcome:
        self.environments = environments
        self.begin(hello(environments, **changes))
        message = self.read()
        assert message is not None
        assert message.WhichOneof("message") == "welcome"
        return message.welcome

    def play(self, steps: int = 1) -> list[wire.Notice]:
        """Play so many steps right, check each answer, and return the notices among them."""
        notices = []
        for _ in range(steps):
            self.send(step(self.sequence, self.environments))
            while True:
                message = self.read()
                assert message is not None, "the stream has ended"
                if message.WhichOneof("message") != "notice":
                    break
                notices.append(message.notice)
            assert message.WhichOneof("message") == "actions", message
            assert message.actions.sequence == self.sequence
            action = np.frombuffer(message.actions.action, np.int32)
            expected = (self.sequence + np.arange(self.environments) + 1) % ACTIONS
            np.testing.assert_array_equal(action, expected)
            self.sequence += 1
        return notices

    def close(self) -> None:
        """Disconnect without Goodbye."""
        self._of.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextlib.contextmanager
def stream(address: str, environments: int = 2) -> Iterator[Stream]:
    """A stream that has been welcomed."""
    with Stream(address) as made:
        made.handshake(environments)
        yield made


class Proxy:
    """A TCP proxy that can fall silent: connections stay open and nothing passes any more."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._frozen = threading.Event()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
                self._sockets += [near, far]
                for pair in ((near, far), (far, near)):
                    args = (*pair, self._frozen)
                    threading.Thread(target=self._pass, args=args, daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, frozen: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if frozen.is_set():
                    return  # keeps both open
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def freeze(self) -> None:
        """From now on the present connections lose everything; new ones are as before."""
        self._frozen.set()
        self._frozen = threading.Event()

    def close(self) -> None:
        self._listener.close()
        for one in self._sockets:
            one.close()
