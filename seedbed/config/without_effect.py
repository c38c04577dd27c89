"""Settings that are given and have no effect, with the reason: a whole sweep can be wrong."""

from collections.abc import Iterable, Iterator

from pydantic import BaseModel

from seedbed.agents import AGENTS
from seedbed.config.environment import FAMILIES
from seedbed.config.keys import is_section, is_within
from seedbed.config.schema import Experiment

_OFF_POLICY = ("r2d2", "dqn")


def settings_without_effect(experiment: Experiment) -> list[str]:
    """Return a line for each setting that differs from the default and has no effect."""
    reasons = list(without_effect(experiment))
    return [
        f"{path} has no effect: {reason}"
        for path in _changed(experiment)
        if (reason := reason_of(path, reasons))
    ]


def reason_of(path: str, reasons: Iterable[tuple[str, str]]) -> str:
    """Return why a setting has no effect, by what `without_effect` yields; empty where it has one.

    Args:
        path: Path of the setting.
        reasons: Prefixes and reasons; the first that fits counts.
    """
    return next((reason for prefix, reason in reasons if is_within(path, prefix)), "")


def _changed(section: BaseModel, path: str = "") -> Iterator[str]:
    """Yield the paths of the settings that are given, with another value than the default."""
    for name, field in type(section).model_fields.items():
        value, here = getattr(section, name), f"{path}.{name}".lstrip(".")
        if is_section(field.annotation) and isinstance(value, BaseModel):
            yield from _changed(value, here)
        elif name in section.model_fields_set and value != field.get_default(
            call_default_factory=True
        ):
            yield here


def without_effect(experiment: Experiment) -> Iterator[tuple[str, str]]:
    """Yield prefixes of paths that have no effect in this experiment, and why."""
    agent, environment, learner = experiment.agent, experiment.environment, experiment.learner
    for other in AGENTS:
        if other != agent:
            yield other, f"the agent is {agent}"
    if agent in AGENTS:
        yield "agent_options", f"{agent} has its own section, {agent}"
    is_atari = environment.family == "atari"
    for family in FAMILIES:
        if family != environment.family:
            yield f"environment.{family}", f"the environment is {environment.id}"
    if environment.family:
        yield "environment.kwargs", f"the environment is set by environment.{environment.family}"
    if not is_atari or environment.atari.preprocessing == "exact":
        yield "actor.threads", "only Atari with the fast preprocessing steps in threads"
    if is_atari and environment.atari.preprocessing == "fast":
        yield "actor.workers", "Atari with the fast preprocessing steps in actor.threads"
    if learner.backend != "tensorflow":
        yield "learner.operation_threads", f"learner.backend is {learner.backend}"
    if learner.inference.location == "actor":
        for name in ("batch_envs", "max_wait_ms"):
            yield f"learner.inference.{name}", "learner.inference.location is actor"
    if agent in AGENTS and agent not in _OFF_POLICY:
        yield "learner.replay", f"{agent} has no replay"
    elif agent in _OFF_POLICY:
        for name in ("epochs_per_batch", "minibatches"):
            yield f"learner.{name}", f"{agent} trains by learner.replay.ratio"
        storage = learner.replay.storage
        if storage != "remote":
            for name in ("shards", "shard_timeout_s"):
                yield f"learner.replay.{name}", f"learner.replay.storage is {storage}"
        if storage != "device":
            yield "learner.replay.transfer_steps", f"learner.replay.storage is {storage}"
    if agent in AGENTS and agent != "a2c":
        yield "learner.straggler_timeout_s", f"{agent} waits for no environment"
    optimizer = learner.optimizer
    for name in ("decay", "momentum") if optimizer.name == "adam" else ("beta_1", "beta_2"):
        yield f"learner.optimizer.{name}", f"the optimizer is {optimizer.name}"
    if optimizer.schedule == "constant":
        for name in ("final_learning_rate", "decay_env_frames"):
            yield f"learner.optimizer.{name}", "learner.optimizer.schedule is constant"
    if experiment.gossip.replicas == 1:
        for name in type(experiment.gossip).model_fields:
            if name != "replicas":
                yield f"gossip.{name}", "gossip.replicas is 1"
    if experiment.stop.mean_return is None:
        yield "stop.mean_return_episodes", "stop.mean_return is not set"
    if not experiment.logging.wandb.enabled:
        yield "logging.wandb", "logging.wandb.enabled is false"
