"""What may change between two starts of one run, and what may not.

A run that resumes takes its parameters, optimizer state and counters from a checkpoint. A setting
that gives those arrays their shapes or their meaning cannot change under them; every other can.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TextIO

import yaml
from pydantic import BaseModel, ValidationError

from seedbed.config import Experiment
from seedbed.config.renamed import translate
from seedbed.runtime.exit_codes import ExitCode, SeedbedError

# Why a key cannot change; `_binds` says when it does not matter.
FIXED: dict[str, str] = {
    "seed": "the parameters were drawn from it, and results are filed under it",
    "environment.id": "the policy was trained for that environment",
    "environment.atari.frame_skip": "steps, frames and the discount's meaning follow from it",
    "environment.atari.full_action_space": "it sets the number of actions and what each one does",
    "environment.atari.height": "it sets the network's input shape",
    "environment.atari.width": "it sets the network's input shape",
    "learner.network": "the parameters belong to that network",
    "learner.network_options": "the parameters' shapes follow from them",
    "learner.lstm_units": "the parameters' shapes follow from it",
    "learner.frame_stack": "it sets the network's input shape",
    "learner.optimizer.name": "the optimizer's state belongs to that optimizer",
    "learner.optimizer.momentum": "RMSProp has velocities only where it is not 0",
    "r2d2.dueling_units": "the parameters' shapes follow from it",
    "dqn.dueling_units": "the parameters' shapes follow from it",
    "agent": "the heads, the loss and what their outputs mean belong to that agent",
}

# Listed one by one, so that a new key of the schema is a decision (a test says so).
FREE: frozenset[str] = frozenset(
    [
        "name",
        "environment.kwargs",
        "environment.atari.preprocessing",
        "environment.atari.noop_max",
        "environment.atari.max_frames_per_episode",
        "environment.atari.sticky_action_probability",
        "actor.processes",
        "actor.groups",
        "actor.envs_per_group",
        "actor.threads",
        "actor.decorrelate_steps",
        "actor.reply_timeout_s",
        "actor.connect_timeout_s",
        "actor.max_environment_failures",
        "actor.metrics_port",
        "learner.backend",
        "learner.device",
        "learner.unroll_length",
        "learner.batch_size",
        "learner.queue_batches",
        "learner.epochs_per_batch",
        "learner.straggler_timeout_s",
        "learner.inference.batch_envs",
        "learner.inference.max_batch_envs",
        "learner.inference.max_wait_ms",
        "learner.inference.slots",
        "learner.replay.storage",
        "learner.replay.capacity",
        "learner.replay.min_size",
        "learner.replay.ratio",
        "learner.replay.ratio_tolerance_batches",
        "learner.replay.priority_exponent",
        "learner.replay.importance_sampling_exponent",
        "learner.replay.prefetch_batches",
        "learner.replay.transfer_steps",
        "learner.replay.directory",
        "learner.replay.shards",
        "learner.replay.shard_timeout_s",
        "learner.optimizer.learning_rate",
        "learner.optimizer.schedule",
        "learner.optimizer.final_learning_rate",
        "learner.optimizer.decay_env_frames",
        "learner.optimizer.beta_1",
        "learner.optimizer.beta_2",
        "learner.optimizer.decay",
        "learner.optimizer.epsilon",
        "learner.optimizer.max_gradient_norm",
        "learner.optimizer.nominal_envs",
        "learner.checkpoint.directory",
        "learner.checkpoint.every_s",
        "learner.checkpoint.keep",
        "learner.checkpoint.max_failures",
        "learner.idle_timeout_s",
        "learner.notice_interval_s",
        "learner.watchdog_timeout_s",
        "learner.metrics_port",
        "learner.deterministic",
        "gossip.replicas",
        "gossip.topology",
        "gossip.graphs",
        "gossip.connectivity_window",
        "gossip.staleness",
        "gossip.deadline_s",
        "gossip.addresses",
        "gossip.distance_every",
        "gossip.snapshot_every_s",
        "gossip.gradients_every",
        "gossip.evaluation",
        "agent_options",
        "vtrace.discount",
        "vtrace.trace_lambda",
        "vtrace.rho_bar",
        "vtrace.c_bar",
        "vtrace.rho_bar_policy",
        "vtrace.entropy_cost",
        "vtrace.baseline_cost",
        "vtrace.reward_clip",
        "vtrace.reward_scale",
        "vtrace.life_loss_ends",
        "a2c.discount",
        "a2c.entropy_cost",
        "a2c.baseline_cost",
        "a2c.reward_clip",
        "a2c.reward_scale",
        "a2c.life_loss_ends",
        "r2d2.discount",
        "r2d2.n_steps",
        "r2d2.double_q",
        "r2d2.value_rescaling_epsilon",
        "r2d2.target_update_period",
        "r2d2.max_priority_weight",
        "r2d2.epsilon_levels",
        "r2d2.evaluation_epsilon",
        "r2d2.reward_clip",
        "r2d2.life_loss_ends",
        "r2d2.burn_in",
        "dqn.discount",
        "dqn.n_steps",
        "dqn.double_q",
        "dqn.value_rescaling_epsilon",
        "dqn.target_update_period",
        "dqn.max_priority_weight",
        "dqn.epsilon_levels",
        "dqn.evaluation_epsilon",
        "dqn.reward_clip",
        "dqn.life_loss_ends",
        "stop.env_frames",
        "stop.seconds",
        "stop.updates",
        "stop.dollars",
        "stop.mean_return",
        "stop.mean_return_episodes",
        "cost.cpu_hour",
        "cost.memory_gib_hour",
        "cost.accelerator_hour",
        "cost.cpus",
        "cost.memory_gib",
        "cost.accelerators",
        "cost.meter",
        "evaluation.every_frames",
        "evaluation.episodes",
        "evaluation.at_end",
        "evaluation.policy",
        "evaluation.num_envs",
        "logging.interval_s",
        "logging.scalars",
        "logging.wandb.enabled",
        "logging.wandb.project",
        "logging.wandb.group",
        "logging.wandb.mode",
    ]
)


@dataclass(frozen=True)
class Change:
    """One key whose value differs. `why` says why it is not allowed, else it is empty."""

    key: str
    old: Any
    new: Any
    allowed: bool
    why: str

    def __str__(self) -> str:
        return f"{self.key}: {self.old!r} -> {self.new!r}"


def compare(old: Experiment, new: Experiment) -> list[Change]:
    """Every key that differs, in the schema's order."""
    before, after = dict(_leaves(old)), dict(_leaves(new))
    changes = []
    for key, value in after.items():
        if before[key] == value:
            continue
        why = FIXED.get(key, "") if _binds(key, old, new) else ""
        changes.append(Change(key, before[key], value, not why, why))
    return changes


def _binds(key: str, old: Experiment, new: Experiment) -> bool:
    """Whether a fixed key has an effect in these experiments."""
    if key.startswith("environment.atari."):
        return old.environment.id.startswith("atari:")
    if key.endswith(".dueling_units"):
        return key.startswith(f"{old.agent}.")
    if key == "learner.optimizer.momentum":
        before, after = old.learner.optimizer, new.learner.optimizer
        return before.name == "rmsprop" and (before.momentum == 0) != (after.momentum == 0)
    return True


def check_resume(
    old: Experiment, new: Experiment, source: str, stream: TextIO | None = None
) -> list[Change]:
    """Say what changed since `source` on `stream` (stderr), and refuse what cannot change.

    Raises:
        SeedbedError: RESUME_REFUSED, naming every refused key with both values and the way out.
    """
    changes = compare(old, new)
    refused = [change for change in changes if not change.allowed]
    if refused:
        lines = [f"  {change} ({change.why})" for change in refused]
        raise SeedbedError(
            ExitCode.RESUME_REFUSED,
            f"{source} cannot be resumed with these settings changed:\n"
            + "\n".join(lines)
            + "\nset them back, or begin a new run: another --run-dir (with --init-from to start "
            "from these parameters where the shapes fit), or --restart fresh",
        )
    for change in changes:
        print(f"resume: {change} since {source}", file=stream or sys.stderr)
    return changes


def read_stored(text: str, source: str, stream: TextIO | None = None) -> Experiment:
    """A stored experiment, perhaps of another version of Seedbed.

    A key that this version does not know is left out, and said; a key that the text lacks has
    its default.

    Raises:
        SeedbedError: it is not an experiment at all.
    """
    try:
        tree = yaml.safe_load(text)
        if isinstance(tree, dict):
            translate(tree)
        while True:
            try:
                return Experiment.model_validate(tree)
            except ValidationError as error:
                unknown = [i["loc"] for i in error.errors() if i["type"] == "extra_forbidden"]
                if not unknown:
                    raise
                for *parents, leaf in unknown:
                    node = tree
                    for part in parents:
                        node = node[part]
                    print(
                        f"resume: {'.'.join(map(str, [*parents, leaf]))} = {node.pop(leaf)!r} of "
                        f"{source} is unknown to this version and left out",
                        file=stream or sys.stderr,
                    )
    except (yaml.YAMLError, ValidationError) as error:
        raise SeedbedError(
            ExitCode.RUN_DIRECTORY,
            f"the experiment stored in {source} cannot be read: {error}\nchoose another --run-dir, "
            "or say --restart fresh",
        ) from error


def _leaves(section: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Keys and values; a free-form mapping (`network_options`) is one value."""
    for key in type(section).model_fields:
        value = getattr(section, key)
        if isinstance(value, BaseModel):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
