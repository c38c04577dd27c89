"""Batchers of a learner, one for each device that acts."""

from collections.abc import Collection

from seedbed.config.learner import Inference
from seedbed.services.learner.sessions.batcher import Batcher
from seedbed.services.learner.sessions.stream_state import StreamState


class Batchers:
    """Batchers of the devices that act.

    Args:
        settings: sizes of batches, and how long they wait.

    Attributes:
        all: the batchers, of which the first one is always there.
    """

    def __init__(self, settings: Inference) -> None:
        self._settings = settings
        self.all: list[Batcher] = []
        self.add()

    def add(self) -> Batcher:
        """Return the batcher of another device. Before a stream has steps."""
        settings = self._settings
        self.all.append(
            Batcher(settings.batch_envs, settings.max_batch_envs, settings.max_wait_ms / 1000)
        )
        return self.all[-1]

    def set_connected(self, states: Collection[StreamState]) -> None:
        """Tell each batcher how many sessions and environments it has.

        Args:
            states: states of all streams.
        """
        for batcher in self.all:
            own = [state.handshake.num_envs for state in states if state.batcher is batcher]
            batcher.set_connected(len(own), sum(own))

    def emptiest(self, states: Collection[StreamState]) -> Batcher:
        """Return the batcher with the fewest environments that step.

        Args:
            states: states of all streams.
        """
        envs = {id(batcher): 0 for batcher in self.all}
        for state in states:
            if state.session is not None:
                envs[id(state.batcher)] += state.handshake.num_envs
        return min(self.all, key=lambda batcher: envs[id(batcher)])
