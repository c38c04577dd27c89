"""Choice of the devices that act and that train, measured where the learner has to choose."""

import json
import logging
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seedbed.backends.protocol import Backend
from seedbed.backends.roles import Split
from seedbed.config import Experiment
from seedbed.runtime.files import atomic_write
from seedbed.services.learner.unrolls.unroll import UnrollSpec
from seedbed.spec import FIRST, ONE_ACTION, EnvironmentSpec, StepInputs

if TYPE_CHECKING:  # it imports Keras, whose backend must be chosen first
    from seedbed.services.learner.unrolls.sequences import SequencePlan

log = logging.getLogger(__name__)

FILE = "devices.json"
_RUNS, _SECONDS = 5, 0.5  # least number and time of a measurement


class Choice(NamedTuple):
    """A split, and the steps a second that it was chosen by.

    Attributes:
        split: the split.
        acts: environment steps that the devices that act compute, a second.
        trains: environment steps that the devices that train use up, a second.
    """

    split: Split
    acts: float
    trains: float

    @property
    def keeps_up(self) -> bool:
        """Whether inference computes as many steps as training uses up."""
        return self.acts >= self.trains

    def __str__(self) -> str:
        return (
            f"{self.split.inference} act, {self.split.training} train: {self.acts:,.0f} steps/s "
            f"of inference for {self.trains:,.0f} steps/s of training"
        )


def choose(
    devices: int,
    batch_size: int,
    most_training: int,
    rows_per_s: float,
    steps_per_s: Callable[[int], float],
) -> Choice:
    """Return the split with the fewest devices that act whose inference keeps up.

    Where none keeps up, the one with the highest rate is returned.

    Args:
        devices: devices of this host, 2 or more.
        batch_size: sequences or unrolls of an update, which the devices that train divide.
        most_training: most devices that may train.
        rows_per_s: steps a second that one device computes as it acts.
        steps_per_s: returns the steps a second that a number of training devices uses up.
    """
    tried: list[Choice] = []
    for acting in range(1, devices):
        most = min(devices - acting, most_training)
        training = next(n for n in range(most, 0, -1) if batch_size % n == 0)
        one = Choice(Split(acting, training), acting * rows_per_s, steps_per_s(training))
        if one.keeps_up:
            return one
        tried.append(one)
    return max(tried, key=lambda each: min(each.acts, each.trains))


def divide_devices(
    experiment: Experiment, spec: EnvironmentSpec, backend: Backend, path: Path
) -> None:
    """Give the devices of this host the roles that this run has kept, or that a measurement says.

    Nothing is done on one device, and where the experiment states the roles.

    Args:
        experiment: the experiment.
        spec: what the environment shows and takes.
        backend: the backend, with nothing on its devices.
        path: the run directory.
    """
    learner, devices = experiment.learner, backend.num_devices()
    if not learner.devices.is_auto or learner.deterministic or learner.hosts > 1 or devices < 2:
        return
    if learner.inference.location == "actor":
        return  # one device trains, and none acts
    split = _kept(path / FILE, devices, experiment.update_unrolls)
    if split is None:
        choice = _measure(experiment, spec, backend, devices)
        split = choice.split
        log.info("learner.devices auto, of %d devices: %s", devices, choice)
        if not choice.keeps_up:
            log.warning("no split of %d devices lets inference keep up with training", devices)
        kept = {"devices": devices, **split._asdict(), "acts": choice.acts, "trains": choice.trains}
        atomic_write(path / FILE, json.dumps(kept) + "\n")
    else:
        log.info("learner.devices auto: %d act, %d train, as this run began", *split)
    backend.divide(split)


def _kept(path: Path, devices: int, batch_size: int) -> Split | None:
    """Read the split that a run has kept; None if there is none that fits."""
    try:
        kept = json.loads(path.read_text())
        split = Split(int(kept["inference"]), int(kept["training"]))
        before = int(kept["devices"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        log.warning("%s cannot be read (%s): measuring again", path, error)
        return None
    if before != devices or min(split) < 1 or sum(split) > devices or batch_size % split.training:
        log.info("%s was measured on %d devices or for another batch: again", path, before)
        return None
    return split


def _measure(
    experiment: Experiment, spec: EnvironmentSpec, backend: Backend, devices: int
) -> Choice:
    # Keras is imported here, after the backend is fixed.
    from seedbed.agents.inference_step import InferenceStep
    from seedbed.services.learner.components_factory import build_trainer

    learner = experiment.learner
    built = build_trainer(experiment, spec, backend)
    rows = learner.inference.max_batch_envs
    act = InferenceStep(backend, built.agent, spec, learner.frame_stack, rows, rows, 0)
    inputs = StepInputs(
        np.arange(rows, dtype=np.int32),
        np.zeros((rows, *spec.observation.shape), spec.observation.dtype),
        np.full(rows, FIRST, np.uint8),
        np.zeros(rows, np.float32),
        np.zeros(rows, np.int32),
    )
    params = built.trainer.params()
    act_s = _median_s(lambda: act.run(params, [inputs]))
    size = experiment.update_unrolls
    steps = learner.batch_size * learner.unroll_length / built.updates_per_batch

    @cache
    def steps_per_s(training: int) -> float:
        # A device has an equal part of the batch. The sum over the devices is not in it.
        batch = _zeros(built.unroll, size // training)

        def update() -> None:
            for value in built.trainer.step(backend.to_device(batch)).values():
                np.asarray(value)  # waits for the end of the step

        return steps / _median_s(update)

    most = 1 if learner.replay.storage == "device" else devices
    return choose(devices, size, most, rows / act_s, steps_per_s)


def _median_s(action: Callable[[], object]) -> float:
    """Return the median time of an action once it is compiled, in seconds."""
    action()
    took: list[float] = []
    while len(took) < _RUNS or sum(took) < _SECONDS:
        started = time.perf_counter()
        action()
        took.append(time.perf_counter() - started)
    return median(took)


def _zeros(unroll: "UnrollSpec | SequencePlan", size: int) -> dict[str, NDArray[Any]]:
    """Return the arrays of a batch without content."""
    is_replayed = not isinstance(unroll, UnrollSpec)
    if isinstance(unroll, UnrollSpec):
        spec: Any = unroll
        timesteps, behaviour = unroll.unroll_length + 1, unroll.behaviour
        action = unroll.action
        frames = unroll.frame_stack - 1 + timesteps
    else:
        spec, behaviour, action = unroll.spec, {}, ONE_ACTION
        frames, timesteps = spec.frames, spec.timesteps
    arrays: dict[str, NDArray[Any]] = {
        "observation": np.zeros((frames, size, *spec.observation.shape), spec.observation.dtype),
        "flags": np.zeros((frames, size), np.uint8),
        "reward": np.zeros((timesteps, size), np.float32),
        "action": np.zeros((timesteps - 1, size, *action.shape), action.dtype),
        "previous_action": np.zeros((size, *action.shape), action.dtype),
        "state": np.zeros((size, spec.state_size), np.float32),
    }
    for name, each in behaviour.items():
        arrays[f"behaviour/{name}"] = np.zeros((timesteps - 1, size, *each.shape), each.dtype)
    if is_replayed:
        arrays["probability"] = np.ones(size, np.float32)
    return arrays
