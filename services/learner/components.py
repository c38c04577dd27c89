"""The parts of a learner that depend on the environment, the wait for them, and the parameters."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seedbed.services.learner.unrolls.unroll import UnrollSpec
from seedbed.spec import EnvironmentSpec
from seedbed.types import Params

if TYPE_CHECKING:  # these import Keras, whose backend must be chosen first
    from seedbed.agents.inference_step import InferenceStep
    from seedbed.agents.protocol import Agent
    from seedbed.backends.protocol import Backend
    from seedbed.backends.trainer import Trainer
    from seedbed.services.learner.training.sources import BatchSource
    from seedbed.services.learner.unrolls.sequences import SequencePlan


_POLL_S = 0.05


@dataclass
class LearnerComponents:
    """Everything that depends on the environment's spec."""

    spec: EnvironmentSpec
    unroll: "UnrollSpec | SequencePlan"
    backend: "Backend"
    agent: "Agent"
    trainer: "Trainer"
    inference: "list[InferenceStep]"  # of each device that acts
    source: "BatchSource"


class ParameterStore:
    """The newest published parameters. Training publishes, inference reads between two batches.

    Attributes:
        to_acting: returns parameters on each device that acts.
    """

    def __init__(self) -> None:
        self._newest: tuple[list[Params], int] | None = None
        self.to_acting: Callable[[Params], list[Params]] = lambda params: [params]

    def publish(self, params: Params, version: int) -> None:
        """Replace the newest parameters as a whole.

        Args:
            params: the parameters, which must never change afterwards.
            version: the count of updates that made them.
        """
        self._newest = (self.to_acting(params), version)

    def newest(self, acting: int = 0) -> tuple[Params, int]:
        """Return the parameters and their version.

        Args:
            acting: number of the device that acts, from 0.
        """
        assert self._newest is not None
        copies, version = self._newest
        return copies[acting], version


class ComponentsFuture:
    """Components to come: the spec is fixed, then the training thread builds.

    Args:
        spec: the spec of the checkpoint that is resumed; None if a probe or an actor brings it.

    Attributes:
        probing: whether a probe of the environment may still bring the spec.
    """

    def __init__(self, spec: EnvironmentSpec | None) -> None:
        self.spec = spec
        self.probing = False
        self._spec_known = threading.Event()
        if spec is not None:
            self._spec_known.set()
        self._components: Future[LearnerComponents] = Future()

    def fix_spec(self, spec: EnvironmentSpec) -> None:
        """Set the spec of all sessions, unless it is known already."""
        if self.spec is None:
            self.spec = spec
            self._spec_known.set()

    def wait_for_spec(self, timeout_s: float) -> EnvironmentSpec | None:
        """Return the spec, or None after `timeout_s`."""
        self._spec_known.wait(timeout_s)
        return self.spec

    def set_result(self, components: LearnerComponents) -> None:
        """Complete the future."""
        self._components.set_result(components)

    async def probed(self) -> EnvironmentSpec | None:
        """Wait for the end of the probe, and return the spec; None if an actor brings it."""
        while self.probing and self.spec is None:
            await asyncio.sleep(_POLL_S)
        return self.spec

    async def unroll(self) -> "UnrollSpec | SequencePlan":
        """Wait for the components in an event loop, which must use no others than `unroll`.

        To cancel the wait cancels nothing else.
        """
        return (await asyncio.shield(asyncio.wrap_future(self._components))).unroll

    def result(self, timeout_s: float) -> LearnerComponents | None:
        """Return the components, or None after `timeout_s`."""
        try:
            return self._components.result(timeout_s)
        except TimeoutError:
            return None
