"""Episodes that begin together are cut once each, at steps of their own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from seedbed.config import Experiment
from seedbed.config.environment import Environment
from seedbed.envs import make_actor_env
from seedbed.envs.decorrelate import DecorrelatedVectorEnv
from seedbed.envs.gymnasium_env import GymnasiumVectorEnv
from seedbed.spec import TimeStep, VectorEnv

E, STEPS, LENGTH = 64, 40, 1000


def experiment(decorrelate_steps: int) -> Experiment:
    return Experiment.model_validate(
        {
            "name": "staggered",
            "environment": {
                "id": "tests.support.toy_environments:Counter",
                "kwargs": {"length": LENGTH},
            },
            "actor": {"envs_per_group": E, "decorrelate_steps": decorrelate_steps},
        }
    )


def first_rows(group: VectorEnv, steps: int, again: bool = False) -> list[list[int]]:
    """The steps at which each environment began an episode."""
    began: list[list[int]] = [[] for _ in range(E)]
    frame = group.reset_again() if again else group.reset()
    for step in range(steps + 1):
        for i in np.flatnonzero(frame.first):
            began[i].append(step)
        frame = group.step(np.zeros(E, np.int32))
    return began


def test_each_environment_begins_anew_once_at_a_step_of_its_own() -> None:
    group = make_actor_env(experiment(STEPS), 0, 0)
    began = first_rows(group, 3 * STEPS)
    group.incarnation = 800  # a new stream, after 800 frames of the run, staggers anew
    again = first_rows(group, 3 * STEPS, again=True)
    group.close()
    for rows in (began, again):
        assert all(len(steps) == 2 and steps[0] == 0 and steps[1] <= STEPS for steps in rows)
        cuts = [steps[1] for steps in rows]
        assert min(cuts) >= 1
        assert len(set(cuts)) > STEPS // 2
    assert began != again
    other = make_actor_env(experiment(STEPS), 0, 1)
    assert first_rows(other, 3 * STEPS) != began
    other.close()


class Spy(GymnasiumVectorEnv):
    """A group that counts its restarts, and refuses to lose an episode's end."""

    restarts = 0

    def restart(self, frame: TimeStep, chosen: NDArray[np.bool_]) -> None:
        assert not (frame.terminated | frame.truncated | frame.first)[chosen].any()
        self.restarts += int(chosen.sum())
        super().restart(frame, chosen)


def test_a_finished_row_is_never_cut() -> None:
    """Episodes of one step, then of two, and so on: many cuts fall due where one ends or begins."""
    settings = Environment.model_validate(
        {"id": "tests.support.toy_environments:Counter", "kwargs": {"length": 1}}
    )
    seeds = list(range(E))
    spy = Spy(settings, seeds)
    group = DecorrelatedVectorEnv(spy, 8, seeds)
    group.reset()
    for _ in range(40):
        group.step(np.zeros(E, np.int32))
    group.close()
    assert spy.restarts == E


def test_none_by_default() -> None:
    group = make_actor_env(experiment(0), 0, 0)
    assert first_rows(group, 2 * STEPS) == [[0]] * E
    group.close()
