"""Hosts of one learner, and the texts that they share."""

from typing import NamedTuple, Protocol


class HostPlace(NamedTuple):
    """A host of a learner: its number from 0, the number of hosts, and where all of them meet."""

    host: int
    hosts: int
    coordinator: str  # host:port, at which the first host listens


class Coordination(Protocol):
    """Texts by key that all hosts of a learner share. Thread-safe.

    Attributes:
        host: number of this host, from 0.
        hosts: number of hosts.
    """

    host: int
    hosts: int

    def put(self, key: str, text: str) -> None:
        """Set or replace a text."""

    def wait(self, key: str, timeout_s: float) -> str | None:
        """Return the text of a key once there is one, or None after `timeout_s`."""

    def texts(self, folder: str) -> dict[str, str]:
        """Return all texts below `folder/`, by the rest of their keys."""

    def delete(self, folder: str) -> None:
        """Delete all texts below `folder/`."""

    def barrier(self, name: str, timeout_s: float) -> None:
        """Wait until all hosts are here.

        Raises:
            SeedbedError: HOSTS_FAILED: they were not within `timeout_s`.
        """

    def close(self) -> None:
        """Disconnect, as all hosts do at the same time."""
