"""One training batch, collected for real, as files to look at. Import it after `backend.use`."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.agents.policy import PolicyModel
from seedbed.agents.r2d2.agent import QModel
from seedbed.agents.training_step import unroll_of
from seedbed.config import Experiment, parse_experiment
from seedbed.config.load import dump_experiment
from seedbed.runs.directory import open_run_directory
from seedbed.services.learner.components import LearnerComponents
from seedbed.services.learner.learner import synchronous
from seedbed.services.learner.single_threaded import OneThreadLearner
from seedbed.services.learner.unrolls.batches import TrainingBatch
from seedbed.types import Params

Arrays = dict[str, NDArray[Any]]

# The dump's own learner: nothing of the experiment's that writes elsewhere, listens or ends it.
_ALONE = (
    "stop={}",
    "evaluation.every_frames=0",
    "evaluation.at_end=false",
    "logging.wandb.enabled=false",
    "logging.scalars=''",
    "learner.checkpoint={}",
    "learner.metrics_port=0",
    "actor.processes=1",
)

# What the arrays are, in the order of the README. `behaviour_*` are the agent's own.
MEANINGS = {
    "observation": "[K-1+R, B, ...] single frames as they came; the first K-1 are what the first "
    "stack needs (zeros or frames of the unroll before)",
    "stacked_observation": "[R, B, ...] what the network sees",
    "flags": "[K-1+R, B] bits as on the wire: 1 terminated, 2 truncated, 4 life lost, 8 first",
    "first": "[R, B] this row begins an episode: the transition into it is none, and no frame",
    "terminated": "[R, B] this row ended the episode",
    "truncated": "[R, B] a time limit cut the episode at this row",
    "life_lost": "[R, B] the step into this row cost a life",
    "reward": "[R, B] raw; reward[t + 1] is what action[t] earned",
    "action": "[T, B] chosen at row t",
    "previous_action": "[R, B] what the network is told; -1 on first rows",
    "previous_reward": "[R, B] likewise; 0 on first rows",
    "state": "[B, S] recurrent state before row 0",
    "version": "[B] mean version of the parameters that acted (updates before them)",
    "logits": "[R, B, A] of the training's forward pass, with the newest parameters",
    "value": "[R, B] likewise",
    "q": "[R, B, A] action values, likewise, from the stored state on",
    "probability": "[B] of having been drawn from replay",
    "log_rho": "[T, B] log of the importance weight of action[t]: how the chances of the action "
    "changed since it was chosen. With --updates 0 the parameters are the same, so anything but "
    "rounding (1e-4) is a defect",
}


@dataclass
class Dump:
    """Arrays by name, and in words which parameters they were computed with."""

    arrays: Arrays
    parameters: str


def collect(experiment: Experiment, init_from: str | None, updates: int) -> Dump:
    """Train `updates` times, from the parameters of a run or from new ones, then take a batch.

    Sessions, inference, unrolls, batches and training are the learner's own, in one thread.

    Raises:
        SeedbedError: whatever the learner fails of.
    """
    overrides = (*_ALONE, *_small_replay(experiment))
    if synchronous(experiment):  # a batch is every environment, and here is one process of them
        columns = experiment.actor.groups * experiment.actor.envs_per_group
        overrides = (*overrides, f"learner.batch_size={columns}")
    alone = parse_experiment(dump_experiment(experiment), overrides, "debug")
    taken: list[Dump] = []
    with tempfile.TemporaryDirectory(prefix="seedbed-debug-") as scratch:
        directory = open_run_directory(Path(scratch) / "run", alone, init_from=init_from)
        with directory:
            start = directory.start_from
            origin = f"the parameters of {start.path}" if start else "new parameters"
            learner = OneThreadLearner(alone, directory, frozen=updates == 0)

            def observe(batch: TrainingBatch) -> None:
                built = learner.model.built(0)
                if learner.counters.updates < updates or taken or built is None:
                    return
                params, version = learner.store.newest()
                words = f"{origin} and {version} more updates" if version else origin
                taken.append(Dump(arrays_of(built, params, batch), words))
                learner.stop("the unroll is there")

            learner.training.observers.append(observe)
            learner.play()
    return taken[0]


def _small_replay(experiment: Experiment) -> tuple[str, ...]:
    """A replay of its own, that is filled soon."""
    actor, batch = experiment.actor, experiment.learner.batch_size
    streams = actor.groups * actor.envs_per_group
    replay = (
        f"capacity={4 * batch + 64 * streams}",
        f"min_size={batch}",
        *("storage=host", "directory=''", "shards=[]"),
    )
    return tuple(f"learner.replay.{setting}" for setting in replay)


def arrays_of(built: LearnerComponents, params: Params, batch: TrainingBatch) -> Arrays:
    """The arrays of `MEANINGS`, as far as the agent has them, and `behaviour_*`."""
    on_device = built.backend.to_device(batch.arrays)
    unroll = unroll_of(built.agent, built.unroll, on_device)
    to_host = built.backend.to_host
    arrays: Arrays = {
        "observation": batch.arrays["observation"],
        "stacked_observation": to_host(unroll.observation),
        "flags": batch.arrays["flags"],
        **{
            name: to_host(getattr(unroll, name))
            for name in ("first", "terminated", "truncated", "life_lost", "reward", "action")
        },
        "previous_action": to_host(unroll.previous_action),
        "previous_reward": to_host(unroll.previous_reward),
        "state": batch.arrays["state"],
        "version": batch.version,
        **{name: batch.arrays[name] for name in ("probability",) if name in batch.arrays},
    }
    for name, values in unroll.behaviour.items():
        arrays[f"behaviour_{name}"] = to_host(values)
    model = built.agent.model
    if isinstance(model, QModel | PolicyModel):
        rows = (unroll.observation, unroll.previous_action, unroll.previous_reward, unroll.first)
        (*heads, _), _ = model.stateless_call(params, [], *rows, unroll.state)
    if isinstance(model, QModel):
        arrays["q"] = to_host(heads[0])
    if isinstance(model, PolicyModel):
        logits, value = heads
        arrays["logits"], arrays["value"] = to_host(logits), to_host(value)
        target, behaviour = arrays["logits"][:-1], arrays["behaviour_logits"]
        arrays["log_rho"] = _log_chance(target, arrays["action"]) - _log_chance(
            behaviour, arrays["action"]
        )
    return arrays


def _log_chance(logits: NDArray[Any], action: NDArray[Any]) -> NDArray[Any]:
    """Log-probability [T, B] of actions [T, B] under logits [T, B, A]."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    chosen = np.take_along_axis(shifted, action[..., None].astype(np.int64), axis=-1)[..., 0]
    return np.asarray(chosen - np.log(np.exp(shifted).sum(axis=-1)))


def write(dump: Dump, experiment: Experiment, directory: Path) -> None:
    """Write `unroll.npz` (no pickle) and `README.txt`."""
    directory.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(directory / "unroll.npz", **dump.arrays)  # type: ignore[arg-type]
    (directory / "README.txt").write_text(readme(dump, experiment))


def readme(dump: Dump, experiment: Experiment) -> str:
    """What the arrays are, and how to open them."""
    learner, arrays = experiment.learner, dump.arrays
    lines = [
        f"One training batch of {experiment.name} ({experiment.environment.id}, "
        f"{experiment.agent}, {learner.network}),",
        f"with {dump.parameters}.",
        "",
        "    import numpy as np",
        '    unroll = np.load("unroll.npz")',
        '    unroll["reward"][:, 0]  # the first column over time',
        "",
        f"T = {len(arrays['action'])} steps of an unroll or sequence, R = T + 1 rows, "
        f"B = {learner.batch_size} columns (environments),",
        f"K = {learner.frame_stack} frames of a stack, S = {arrays['state'].shape[-1]} numbers of "
        "recurrent state, A actions.",
        "Row t is what arrived with observation t, and action[t] what was chosen on it.",
        "",
    ]
    for name in sorted(arrays, key=_order):
        array = arrays[name]
        meaning = MEANINGS.get(name, "[T, B, ...] kept from the very call that chose the action")
        lines += [f"{name}: {array.dtype} {list(array.shape)}", f"    {meaning}"]
    return "\n".join(lines) + "\n"


def _order(name: str) -> tuple[int, str]:
    names = list(MEANINGS)
    return (names.index(name) if name in names else len(names), name)
