"""The master invariant over matches of Google Research Football, in all sizes of its map."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from seedbed.config import Experiment, parse_experiment
from seedbed.config.load import dump_experiment
from seedbed.envs import make_vector_env
from seedbed.envs.decorrelate import DecorrelatedVectorEnv
from seedbed.envs.seeds import environment_seed
from seedbed.spec import FIRST, ActionSpec, VectorEnv
from tests.services.learner.test_master_invariant import (
    check_log_rho,
    collect,
    experiment,
    largest_log_rho,
    log_prob,
    log_softmax,
    recomputation,
)

# Episodes end within 32 steps or so: others take the ball away. The first ones are cut before.
CUT = 20
SCENARIO = "football:academy_run_to_score"
CASES = [
    ("96x72", "scoring", "football", 0, 4),
    ("120x90", "scoring,checkpoints", "impala_shallow", 16, 2),
    ("144x108", "scoring,checkpoints", "impala_shallow", 0, 4),
]


@pytest.mark.backends
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_training_computes_what_acting_computed(
    case: tuple[str, str, str, int, int], tmp_path: Path
) -> None:
    pytest.importorskip("gfootball_engine", reason="no gfootball: `make football` builds it")
    smm, rewards, network, lstm, stack = case
    settings = {"id": SCENARIO, "football": {"smm": smm, "rewards": rewards}}
    overrides = [f"environment={settings}"]
    config: Experiment = parse_experiment(
        dump_experiment(experiment(network, lstm, stack)), overrides
    )

    def make(environments: int, number: int, visit: int) -> VectorEnv:
        seeds = [environment_seed(visit, number, 0, i) for i in range(environments)]
        made = make_vector_env(config.environment, environments, 1, seeds)
        return DecorrelatedVectorEnv(made, CUT, seeds)

    built, batches, params = collect(config, tmp_path, make=make)
    recompute = recomputation(built, params)
    context, space = stack - 1, ActionSpec.discrete(19)
    assert built.agent.body.action == space
    ended, log_rho = 0, []
    for batch in batches:
        first = ((batch.arrays["flags"] & FIRST) != 0)[context:]
        there = ~first.all(axis=0)  # [B], not padding
        behaviour = batch.arrays["behaviour/logits"]
        recomputed = recompute(batch)[:-1]
        acted, trained = log_softmax(behaviour[:, there]), log_softmax(recomputed[:, there])
        np.testing.assert_allclose(trained, acted, atol=1e-4, rtol=0)
        difference = log_prob(recomputed, batch.arrays, space)
        difference = difference - log_prob(behaviour, batch.arrays, space)
        log_rho.append(difference[:, there].ravel())
        assert acted.std() > 1e-3, "a policy that ignores its input proves nothing"
        ended += int(first[1:, there].sum())
    assert ended > 0, "no match ended: the rows prove too little"
    check_log_rho(np.concatenate(log_rho), largest_log_rho(built))
