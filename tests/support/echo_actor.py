"""An actor in a thread, whose group checks that each answer is its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from seedbed.services.actor.loop import ActorLoop
from seedbed.services.actor.metrics import ActorMetrics
from seedbed.spec import EnvironmentSpec, TimeStep
from tests.support.null_model import ACTIONS, NAME, OBSERVATION
from tests.support.waiting import wait_for


class EchoVectorEnv:
    """Checks that each answer is its own; see `NullPolicy`."""

    num_envs = 3
    failures: Mapping[str, int] = MappingProxyType({})
    spec = EnvironmentSpec(NAME, OBSERVATION, ACTIONS, 1)

    def __init__(self) -> None:
        self.steps = self.resets = 0
        self.incarnation = 0
        self.incarnations: list[int] = []  # of the resets
        self.stepping = threading.Event()
        self.may_step = threading.Event()
        self.may_step.set()

    def _frame(self, first: bool) -> TimeStep:
        e = self.num_envs
        self._seen = (7 * self.steps + np.arange(e)) % ACTIONS
        observation = np.zeros((e, 2), np.float32)
        observation[:, 0] = self._seen
        none = np.zeros(e, bool)
        return TimeStep(observation, np.zeros(e, np.float32), none, none, none, none | first)

    def reset(self) -> TimeStep:
        self.resets += 1
        self.incarnations.append(self.incarnation)
        return self._frame(True)

    def reset_again(self) -> TimeStep:
        return self.reset()

    def step(self, action: NDArray[np.int32]) -> TimeStep:
        np.testing.assert_array_equal(action, (self._seen + 1) % ACTIONS)
        self.stepping.set()
        assert self.may_step.wait(30)
        self.steps += 1
        return self._frame(False)

    def close(self) -> None:
        pass


class Actor:
    """A group's runner in a thread of its own, as in an actor process."""

    def __init__(
        self,
        address: str,
        reply_timeout_s: float = 30,
        connect_s: float = 30,
        name: str = "test",
        env_frames: int | None = None,
    ) -> None:
        self.group = EchoVectorEnv()
        self.metrics = ActorMetrics()
        self._address, self._timeouts = address, (reply_timeout_s, connect_s)
        self._name, self._env_frames = name, env_frames
        self._runner: ActorLoop | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.failure: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        async def play() -> None:
            self._loop = asyncio.get_running_loop()
            self._runner = ActorLoop(
                lambda: self.group, self._address, self._name, *self._timeouts, self.metrics,
                env_frames=self._env_frames,
            )  # fmt: skip
            await self._runner.run()

        try:
            asyncio.run(play())
        except BaseException as error:
            self.failure = error

    def goes_on(self) -> None:
        before = self.group.steps
        wait_for(lambda: self.group.steps > before + 5, f"steps: {self.failure}")

    def stop(self) -> None:
        assert self._loop is not None
        assert self._runner is not None
        self._loop.call_soon_threadsafe(self._runner.stop)
        self.thread.join(30)
        assert not self.thread.is_alive()
