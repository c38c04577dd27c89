"""One training batch of a real learner as arrays. Import this module after `backends.use`."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.agents.actor_critic import ActorCriticModel
from seedbed.agents.q_learning import QModel
from seedbed.agents.training_step import unroll_of
from seedbed.analysis.unroll_files import Arrays, UnrollDump, title_of
from seedbed.config import Experiment, parse_experiment
from seedbed.config.load import dump_experiment
from seedbed.runs.directory import open_run_directory
from seedbed.runtime.text import counted
from seedbed.services.learner.components import LearnerComponents
from seedbed.services.learner.single_threaded import SingleThreadedLearner
from seedbed.services.learner.synchronous import is_synchronous
from seedbed.services.learner.unrolls.batches import TrainingBatch
from seedbed.types import Params

# The learner of a dump writes nowhere else, listens nowhere, and has no stop condition.
_ALONE = (
    "stop={}",
    "evaluation.every_frames=0",
    "evaluation.at_end=false",
    "logging.wandb.enabled=false",
    "logging.scalars=''",
    "learner.checkpoint={}",
    "learner.metrics_port=0",
    "learner.replay.storage=host",
    "learner.replay.directory=''",
    "learner.replay.shards=[]",
    "actor.processes=1",
)


def collect_unroll(experiment: Experiment, init_from: str | None, updates: int) -> UnrollDump:
    """Run a learner in one thread until there is a training batch.

    Args:
        experiment: the experiment; stop conditions, checkpoints and evaluations are left out.
        init_from: run directory whose parameters act; None for new ones.
        updates: updates before the batch is taken.

    Raises:
        SeedbedError: the learner fails.
    """
    actor, batch_size = experiment.actor, experiment.learner.batch_size
    envs = actor.groups * actor.envs_per_group
    # A small replay, because sampling begins when it has one batch.
    replay = (f"capacity={4 * batch_size + 64 * envs}", f"min_size={batch_size}")
    overrides = [*_ALONE, *(f"learner.replay.{setting}" for setting in replay)]
    if is_synchronous(experiment):
        # A synchronous batch is every environment, and the dump has one actor process.
        overrides.append(f"learner.batch_size={envs}")
    alone = parse_experiment(dump_experiment(experiment), overrides, "inspect")
    dumps: list[UnrollDump] = []
    with (
        tempfile.TemporaryDirectory(prefix="seedbed-inspect-") as scratch,
        open_run_directory(Path(scratch) / "run", alone, init_from=init_from) as directory,
    ):
        start = directory.start_from
        origin = f"the parameters of {start.path}" if start else "new parameters"
        learner = SingleThreadedLearner(alone, directory, frozen=updates == 0)

        def observe(batch: TrainingBatch) -> None:
            built = learner.components.result(0)
            if learner.counters.updates < updates or dumps or built is None:
                return
            params, version = learner.store.newest()
            words = f"{origin} and {counted(version, 'further update')}" if version else origin
            dumps.append(
                UnrollDump(unroll_arrays(built, params, batch), title_of(experiment), words)
            )
            learner.stop("the unroll is there")

        learner.training.observers.append(observe)
        learner.run()
    return dumps[0]


def unroll_arrays(built: LearnerComponents, params: Params, batch: TrainingBatch) -> Arrays:
    """Return the arrays of `MEANINGS` that the agent has, and `behaviour_*`."""
    unroll = unroll_of(built.agent, built.unroll.frame_stack, built.backend.to_device(batch.arrays))
    fields = unroll._asdict()
    arrays = {
        **{f"behaviour_{name}": values for name, values in fields.pop("behaviour").items()},
        **fields,
        "stacked_observation": unroll.observation,
        "observation": batch.arrays["observation"],
        "flags": batch.arrays["flags"],
        "version": batch.version,
    }
    if "probability" in batch.arrays:
        arrays["probability"] = batch.arrays["probability"]
    # The forward pass of training, with the newest parameters.
    model = built.agent.model
    if isinstance(model, QModel | ActorCriticModel):
        steps = unroll.steps()
        (*heads, _), _ = model.stateless_call(params, [], *steps, unroll.state)
        names = ("q",) if isinstance(model, QModel) else ("logits", "value")
        arrays |= zip(names, heads, strict=True)
    on_host: Arrays = {name: np.asarray(array) for name, array in arrays.items()}
    if "logits" in on_host:
        action = on_host["action"]
        on_host["log_rho"] = _log_probability(on_host["logits"][:-1], action) - _log_probability(
            on_host["behaviour_logits"], action
        )
    return on_host


def _log_probability(logits: NDArray[Any], action: NDArray[Any]) -> NDArray[Any]:
    """Return log-probabilities [T, B] of actions [T, B] under logits [T, B, A]."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    chosen = np.take_along_axis(shifted, action[..., None].astype(np.int64), axis=-1)[..., 0]
    return np.asarray(chosen - np.log(np.exp(shifted).sum(axis=-1)))
