"""Keys of the experiment that have another name than in an older version."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

# Old path -> new path, in the order of the schema. All of them were renamed after 0.1.0. A section
# comes after its keys, which move first.
RENAMED = {
    "environment.table9": "environment.atari.preprocessing",
    "actor.environments": "actor.envs_per_group",
    "actor.stagger_steps": "actor.decorrelate_steps",
    "learner.inference.batch_environments": "learner.inference.batch_envs",
    "learner.inference.max_batch_environments": "learner.inference.max_batch_envs",
    "learner.optimizer.nominal_environments": "learner.optimizer.nominal_envs",
    "learner.passes": "learner.epochs_per_batch",
    "learner.round_deadline_s": "learner.straggler_timeout_s",
    "learner.stuck_timeout_s": "learner.watchdog_timeout_s",
    "learner.replay.home": "learner.replay.storage",
    "learner.replay.sequences": "learner.replay.capacity",
    "learner.replay.min_sequences": "learner.replay.min_size",
    "learner.replay.ahead_batches": "learner.replay.ratio_tolerance_batches",
    "learner.replay.importance_exponent": "learner.replay.importance_sampling_exponent",
    "learner.replay.update_size": "learner.replay.transfer_steps",
    "r2d2.priority_eta": "r2d2.max_priority_weight",
    "r2d2.target_update_every": "r2d2.target_update_period",
    "dqn.priority_eta": "dqn.max_priority_weight",
    "dqn.target_update_every": "dqn.target_update_period",
    "evaluation.environments": "evaluation.num_envs",
    "learners.count": "gossip.replicas",
    "learners.window": "gossip.connectivity_window",
    "learners": "gossip",
}
# Values that were renamed with their key: (old path, old value) -> new value.
RENAMED_VALUES = {("learner.replay.home", "service"): "remote"}


def renamed_keys(tree: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the old and the new path of every renamed key that `tree` has."""
    for old, new in RENAMED.items():
        parent = _section(tree, old)
        if parent is not None and old.rpartition(".")[2] in parent:
            yield old, new


def translate(tree: dict[str, Any]) -> None:
    """Move every renamed key of `tree`, which an older version stored, to its new place."""
    for old, new in list(renamed_keys(tree)):
        parent = _section(tree, old)
        assert parent is not None
        value = parent.pop(old.rpartition(".")[2])
        *sections, leaf = new.split(".")
        target = tree
        for name in sections:
            target = target.setdefault(name, {})
        if isinstance(value, dict):
            # The renamed keys of this section have moved already; move the others to them.
            target.setdefault(leaf, {}).update(value)
        else:
            target[leaf] = RENAMED_VALUES.get((old, value), value)


def _section(tree: dict[str, Any], path: str) -> dict[str, Any] | None:
    """Return the mapping that holds the last key of `path`; None where there is none."""
    node: Any = tree
    for name in path.split(".")[:-1]:
        node = node.get(name) if isinstance(node, dict) else None
    return node if isinstance(node, dict) else None
