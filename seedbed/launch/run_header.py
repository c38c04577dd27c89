"""The lines with which a run begins: what it is, where its files go, when it ends."""

import math
from importlib.metadata import version
from typing import TYPE_CHECKING

from seedbed.backends.roles import SHARED
from seedbed.config.run import Stop
from seedbed.config.schema import Experiment
from seedbed.runs.directory import RunDirectory
from seedbed.runs.layout import learner_directories
from seedbed.runtime.accelerators import slow_bfloat16, unusable_accelerator
from seedbed.runtime.formats import duration, money, si_number
from seedbed.runtime.paths import shown
from seedbed.runtime.text import counted

if TYPE_CHECKING:  # these import Keras
    from seedbed.backends.protocol import Backend
    from seedbed.backends.trainer import Trainer

_ROW = "  {:<12} {}"


def header(experiment: Experiment, directory: RunDirectory) -> str:
    """Return the lines, before anything is loaded. The model's line follows when it is built.

    Args:
        experiment: The resolved experiment.
        directory: The open run directory.
    """
    begin = "begins here"
    if directory.resume_from is not None:
        counters = directory.resume_from.meta["counters"]
        begin = f"resumes at {counted(si_number(counters['env_frames']), 'frame')}"
        begin += f", update {counters['updates']:,}"
    elif any((one / "checkpoints").is_dir() for one in learner_directories(directory.path)):
        begin = "each learner resumes from its checkpoint"
    elif directory.start_from is not None:
        begin += f" with the parameters of {directory.start_from.path}"
    environment = f"{experiment.environment.id}, agent {experiment.agent}"
    if experiment.gossip.replicas > 1:
        environment += f", {experiment.gossip.replicas} learners"
    if experiment.learner.hosts > 1:
        environment += f" of {experiment.learner.hosts} hosts" * (experiment.gossip.replicas > 1)
        environment += f", {experiment.learner.hosts} hosts" * (experiment.gossip.replicas == 1)
    rows = [
        ("environment", environment),
        ("run", f"{shown(directory.path)} ({begin})"),
        ("ends at", " or ".join(_ends(experiment.stop)) or "Ctrl-C: no stop condition is set"),
        ("Ctrl-C", "stops the run with a checkpoint; the same command resumes it"),
    ]
    learner = experiment.learner
    unusable = unusable_accelerator(learner.backend)
    if unusable and learner.device != "cpu":
        rows.append(("accelerator", unusable))
    slow = slow_bfloat16(learner.backend, learner.device)
    if slow and learner.precision == "bfloat16":
        rows.append(("precision", f"{slow}: learner.precision=float32 is better here"))
    return "\n".join(
        [f"seedbed {version('seedbed')}: {experiment.name}", *(_ROW.format(*row) for row in rows)]
    )


def describe_model(
    experiment: Experiment, backend: "Backend", trainer: "Trainer", network: str
) -> str:
    """Describe the network, its size, and what it runs on, in one line.

    Args:
        experiment: The resolved experiment.
        backend: The backend, with its devices.
        trainer: The trainer, with the parameters.
        network: Name of the network, which may be of the learner's choice.
    """
    learner, split = experiment.learner, backend.split
    lstm = f" with an LSTM of {learner.lstm_units}" if learner.lstm_units else ""
    size = sum(math.prod(shape) for _, shape in trainer.layout())
    roles = ""
    if split != SHARED:
        idle = backend.num_devices() - split.inference - split.training
        also = f", {idle} idle" if idle > 0 else ""
        roles = f" ({split.inference} act, {split.training} train{also})"
    return (
        f"{network}{lstm}, {size:,} parameters, {learner.precision}; {backend.name} "
        f"{version(backend.name)} on {', '.join(backend.devices())}{roles}"
    )


def _ends(stop: Stop) -> list[str]:
    ends = []
    if stop.mean_return is not None:
        ends.append(
            f"mean return {stop.mean_return:g} over {counted(stop.mean_return_episodes, 'episode')}"
        )
    if stop.env_frames:
        ends.append(counted(si_number(stop.env_frames), "frame"))
    if stop.updates:
        ends.append(counted(stop.updates, "update"))
    if stop.seconds:
        ends.append(f"{duration(stop.seconds)} of training")
    if stop.dollars:
        ends.append(money(stop.dollars))
    return ends
