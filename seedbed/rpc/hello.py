"""Hello of a stream: what a client states about itself, in the metadata of its call.

The metadata comes before any message, and gRPC bounds it (`channels.METADATA_BYTES`): a server that
refuses a Hello has read no message of the client.
"""

from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from seedbed.rpc.channels import METADATA_BYTES
from seedbed.rpc.credentials import Credentials
from seedbed.rpc.stream import Metadata
from seedbed.runtime.exit_codes import ConfigError

# Metadata of a call: a serialized Hello.
HELLO_KEY = "seedbed-hello-bin"
# Bytes that a Hello leaves to the credential and to gRPC's own metadata.
_OTHER_BYTES = 2 * 1024
LARGEST_HELLO_BYTES = METADATA_BYTES - _OTHER_BYTES

_Hello = TypeVar("_Hello", bound=Message)


class NoHello(ValueError):
    """The metadata of a call has no Hello.

    Attributes:
        received: what it has in place of it.
    """

    def __init__(self, kind: str, received: str) -> None:
        super().__init__(
            f"a {kind} is expected in the metadata {HELLO_KEY}, not {received}: run the same "
            "release at both ends"
        )
        self.received = received


def hello_metadata(hello: Message, credentials: Credentials) -> Metadata:
    """Return the metadata of a call: the credential and a Hello.

    Args:
        hello: the Hello.
        credentials: credentials of this process.

    Raises:
        SeedbedError: CONFIG, the Hello is larger than `LARGEST_HELLO_BYTES`.
    """
    data = hello.SerializeToString()
    if len(data) > LARGEST_HELLO_BYTES:
        raise ConfigError(
            f"a {hello.DESCRIPTOR.name} has {len(data)} bytes, and the metadata of a call takes "
            f"{LARGEST_HELLO_BYTES}: name fewer entries of the observation, or fewer parameters"
        )
    return (*credentials.metadata(), (HELLO_KEY, data))


def hello_in(metadata: Metadata, kind: type[_Hello]) -> _Hello:
    """Return the Hello in the metadata of a call.

    Args:
        metadata: metadata of the call.
        kind: class of the Hello.

    Raises:
        NoHello: there is none, or it is not a Hello.
    """
    data = dict(metadata).get(HELLO_KEY)
    if not isinstance(data, bytes):
        raise NoHello(kind.DESCRIPTOR.name, "nothing")
    hello = kind()
    try:
        hello.ParseFromString(data)
    except DecodeError:
        raise NoHello(kind.DESCRIPTOR.name, "bytes that are none") from None
    return hello
