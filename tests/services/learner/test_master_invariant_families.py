"""The master invariant over environments of ours: DeepMind Lab by its stand-in, ViZDoom itself.

As `test_master_invariant`, with the vector environments of `make_vector_env`: episodes end by
themselves, one environment fails and is made anew, and one session leaves in mid-unroll.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from seedbed.config import Experiment
from seedbed.config.environment import Environment
from seedbed.envs import make_vector_env
from seedbed.envs.lab import ACTIONS
from seedbed.services.actor.loop import ActorLoop
from seedbed.services.actor.metrics import ActorMetrics
from seedbed.spec import FIRST, TERMINATED, TRUNCATED, ActionSpec, TimeStep, VectorEnv
from tests.services.learner import test_master_invariant as invariant
from tests.support.lab import fake_lab, lab
from tests.support.processes import children

Disturb = Callable[[], None]


@pytest.fixture(params=["lab", "vizdoom"])
def family(request: pytest.FixtureRequest) -> Iterator[tuple[Environment, Disturb]]:
    """A family's environment, and what makes one environment of this process fail."""
    if request.param == "lab":
        with fake_lab() as package:

            def close_one() -> None:
                next(made for made in package.Lab.made if not made.closed).close()

            yield lab(), close_one
        return
    pytest.importorskip("vizdoom", reason="the extra vizdoom is not installed")

    earlier = set(children(os.getpid()))  # engines of another test, which may end late

    def kill_one() -> None:
        engines = (
            pid
            for pid in children(os.getpid())
            if pid not in earlier
            and b"+viz_instance_id" in Path(f"/proc/{pid}/cmdline").read_bytes()
        )
        os.kill(min(engines), signal.SIGKILL)

    # Episodes of 19 steps where nothing is hit.
    settings = {"action_repeat": 16}
    yield Environment.model_validate({"id": "vizdoom:basic", "vizdoom": settings}), kill_one


class Played(VectorEnv):
    """A vector environment that says when it has made some steps, and what failed.

    Args:
        env: the vector environment.
        after: steps.
        then: is called then.
    """

    def __init__(self, env: VectorEnv, after: int, then: Disturb = lambda: None) -> None:
        self._env, self._left, self._then = env, after, then
        self.spec, self.num_envs = env.spec, env.num_envs
        self.enough = threading.Event()

    def reset(self) -> TimeStep:
        self._env.incarnation = self.incarnation
        return self._env.reset()

    def step(self, action: NDArray[Any]) -> TimeStep:
        time_step = self._env.step(action)
        self.failures = self._env.failures
        self._left -= 1
        if self._left == 0:
            self._then()
            self.enough.set()
        return time_step

    def restart(self, time_step: TimeStep, chosen: NDArray[np.bool_]) -> None:
        self._env.restart(time_step, chosen)

    def close(self) -> None:
        self._env.close()


def player(environment: Environment, disturb: Disturb, made: list[Played]) -> Any:
    """What `invariant.collect` lets play, until it has enough."""

    def loop(address: str, e: int, number: int, after: int) -> tuple[ActorLoop, Played]:
        seeds = [1000 * number + i for i in range(e)]
        group = make_vector_env(environment, e, 1, seeds, max_failures=100)
        # The oldest environment of all fails, which is one of the first group's.
        env = Played(group, after, lambda: None if made[0] is not env else disturb())
        made.append(env)
        name = f"test/{number}"
        return ActorLoop(lambda: env, address, name, 60.0, 60.0, ActorMetrics()), env

    async def play(config: Experiment, address: str, done: threading.Event) -> None:
        loops = [loop(address, e, e, 10) for e in (2, 1)]
        steady = [asyncio.create_task(one.run()) for one, _ in loops]
        for _, env in loops:
            await asyncio.to_thread(env.enough.wait, invariant.DEADLINE_S)
        # 17 steps are two unrolls and a half.
        one, env = await asyncio.to_thread(loop, address, 1, 100, 17)
        restless = asyncio.create_task(one.run())
        while not (done.is_set() or env.enough.is_set()):
            await asyncio.sleep(0.05)
        restless.cancel()
        await asyncio.gather(restless, return_exceptions=True)
        await asyncio.to_thread(done.wait)
        for task in steady:
            task.cancel()
        await asyncio.gather(*steady, return_exceptions=True)

    return play


@pytest.mark.slow_after(1)
@pytest.mark.slow_on_jax
@pytest.mark.backends
@pytest.mark.parametrize(("lstm", "stack"), [(16, 1), (0, 2)], ids=["lstm", "stack"])
def test_training_computes_what_acting_computed(
    family: tuple[Environment, Disturb],
    lstm: int,
    stack: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environment, disturb = family
    config = invariant.experiment("impala_shallow", lstm, stack, batch_size=4)
    config = config.model_copy(update={"environment": environment})
    made: list[Played] = []
    monkeypatch.setattr(invariant, "play", player(environment, disturb, made))
    built, batches, params = invariant.collect(config, tmp_path)
    recompute = invariant.recomputation(built, params)
    space = ActionSpec.discrete(made[0].spec.actions)
    ends = 0
    log_rho = []
    for batch in batches:
        arrays, context = batch.arrays, stack - 1
        there = ~((arrays["flags"] & FIRST) != 0)[context:].all(axis=0)  # [B], not padding
        behaviour = arrays["behaviour/logits"]  # [T, B, P]
        recomputed = recompute(batch)[:-1]
        acted = invariant.log_softmax(behaviour[:, there])
        trained = invariant.log_softmax(recomputed[:, there])
        np.testing.assert_allclose(trained, acted, atol=1e-4, rtol=0)
        assert acted.std() > 1e-3, "a policy that ignores its input proves nothing"
        difference = invariant.log_prob(recomputed, arrays, space)
        difference = difference - invariant.log_prob(behaviour, arrays, space)
        log_rho.append(difference[:, there].ravel())
        ends += check_story(arrays, there, context, environment)
    assert ends > 0, "no episode ended: the batches prove too little"
    assert sum(sum(env.failures.values()) for env in made) == 1
    invariant.check_log_rho(np.concatenate(log_rho), invariant.largest_log_rho(built))


def check_story(
    arrays: dict[str, np.ndarray], there: np.ndarray, context: int, environment: Environment
) -> int:
    """Each finished step is followed by a first one; of Lab, pictures tell frame and action.

    Returns the finished steps.
    """
    ends = 0
    flags = arrays["flags"][context:]
    picture = arrays["observation"][context:]
    told = np.array([[int(x) % 256 for x in row] for row in ACTIONS])
    for b in np.flatnonzero(there):
        for t in range(len(flags) - 1):
            first = bool(flags[t + 1, b] & FIRST)
            finished = bool(flags[t, b] & (TERMINATED | TRUNCATED))
            ends += finished
            assert first or not finished, "a first step follows each finished one"
            if first:
                assert arrays["reward"][t + 1, b] == 0
                assert not flags[t + 1, b] & (TERMINATED | TRUNCATED)
            elif environment.family == "lab" and not flags[t + 1, b] & TERMINATED:
                now, then = picture[t, b, 0], picture[t + 1, b, 0]
                assert then[0, 0] == now[0, 0] + environment.lab.action_repeat, "a step is missing"
                assert (then[1:8, 0] == told[arrays["action"][t, b]]).all(), "its own action"
    return ends
