"""One training batch of a real learner as files. Import this module after `backends.use`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seedbed.agents.actor_critic import ActorCriticModel
from seedbed.agents.q_learning import QModel
from seedbed.agents.training_step import unroll_of
from seedbed.config import Experiment, parse_experiment
from seedbed.config.load import dump_experiment
from seedbed.runs.directory import open_run_directory
from seedbed.services.learner.base import is_synchronous
from seedbed.services.learner.components import LearnerComponents
from seedbed.services.learner.single_threaded import SingleThreadedLearner
from seedbed.services.learner.unrolls.batches import TrainingBatch
from seedbed.types import Params

Arrays = dict[str, NDArray[Any]]

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

# Meanings of the arrays for the README. `behaviour_*` are the agent's own.
MEANINGS = {
    "observation": "[K-1+R, B, ...] single frames as received; the first K-1 are what the first "
    "stack needs (zeros, or frames of the unroll before)",
    "stacked_observation": "[R, B, ...] input of the network",
    "flags": "[K-1+R, B] bits: 1 terminated, 2 truncated, 4 life lost, 8 first",
    "first": "[R, B] the step begins an episode; the transition into it is not real",
    "terminated": "[R, B] the step ended the episode",
    "truncated": "[R, B] a time limit cut the episode at this step",
    "life_lost": "[R, B] the action before this step cost a life",
    "reward": "[R, B] raw; reward[t + 1] is what action[t] earned",
    "action": "[T, B] chosen at step t",
    "previous_action": "[R, B] input of the network; -1 on first steps",
    "previous_reward": "[R, B] input of the network; 0 on first steps",
    "state": "[B, S] recurrent state before step 0",
    "version": "[B] mean version of the parameters that acted (updates that made them)",
    "logits": "[R, B, A] of the training's forward pass, with the newest parameters",
    "value": "[R, B] of the training's forward pass",
    "q": "[R, B, A] action values of the training's forward pass, from the stored state on",
    "probability": "[B] probability with which replay drew the sequence",
    "log_rho": "[T, B] log of the importance weight of action[t]: how its probability changed "
    "since it was chosen. With --updates 0 the parameters are the same, so anything but rounding "
    "(1e-4) is a defect",
}
_BEHAVIOUR = "[T, B, ...] from the inference call that chose the action"


class UnrollDump(NamedTuple):
    """One training batch, and the parameters that acted in it."""

    arrays: Arrays
    parameters: str  # in words


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
            words = f"{origin} and {version} more updates" if version else origin
            dumps.append(UnrollDump(unroll_arrays(built, params, batch), words))
            learner.stop("the unroll is there")

        learner.training.observers.append(observe)
        learner.run()
    return dumps[0]


def unroll_arrays(built: LearnerComponents, params: Params, batch: TrainingBatch) -> Arrays:
    """Return the arrays of `MEANINGS` that the agent has, and `behaviour_*`."""
    unroll = unroll_of(built.agent, built.unroll, built.backend.to_device(batch.arrays))
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
        steps = (unroll.observation, unroll.previous_action, unroll.previous_reward, unroll.first)
        (*heads, _), _ = model.stateless_call(params, [], *steps, unroll.state)
        names = ("q",) if isinstance(model, QModel) else ("logits", "value")
        arrays |= zip(names, heads, strict=True)
    on_host: Arrays = {name: built.backend.to_host(array) for name, array in arrays.items()}
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


def write_unroll(dump: UnrollDump, experiment: Experiment, directory: Path) -> None:
    """Write `unroll.npz`, without pickle, and `README.txt`."""
    directory.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(directory / "unroll.npz", **dump.arrays)  # type: ignore[arg-type]
    (directory / "README.txt").write_text(readme(dump, experiment))


def readme(dump: UnrollDump, experiment: Experiment) -> str:
    """Return a page that names the arrays and how to open them."""
    learner, arrays = experiment.learner, dump.arrays
    text = f"""\
One training batch of {experiment.name} ({experiment.environment.id}, {experiment.agent}, \
{learner.network}),
with {dump.parameters}.

    import numpy as np
    unroll = np.load("unroll.npz")
    unroll["reward"][:, 0]  # of the first environment, over time

T = {len(arrays["action"])} steps of an unroll or sequence, R = T + 1, \
B = {arrays["action"].shape[1]} environments,
K = {learner.frame_stack} frames of a stack, S = {arrays["state"].shape[-1]} numbers of \
recurrent state, A actions.
Step t is what was received with observation t, and action[t] what was chosen on it.

"""
    for name in [*(x for x in MEANINGS if x in arrays), *sorted(arrays.keys() - MEANINGS.keys())]:
        array = arrays[name]
        text += f"{name}: {array.dtype} {list(array.shape)}\n    {MEANINGS.get(name, _BEHAVIOUR)}\n"
    return text
