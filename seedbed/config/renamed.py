"""Keys of the experiment that have another name than in an older version."""

from collections.abc import Iterator
from typing import Any

# Old path -> new path, in the order of the schema. All of them were renamed after 0.1.0. A section
# comes after its keys, which move first.
RENAMED = {
    "environment.table9": "environment.atari.preprocessing",
    "actor.environments": "actor.envs_per_group",
    "actor.worker_timeout_s": "actor.environment_timeout_s",
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
# Values that were renamed: (new path of the key, old value) -> new value.
RENAMED_VALUES = {("learner.replay.storage", "service"): "remote"}


def renamed_keys(tree: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield the old path, the new path and the value of every renamed key that `tree` has."""
    for old, new in RENAMED.items():
        *sections, leaf = old.split(".")
        node: Any = tree
        for name in sections:
            node = node.get(name) if isinstance(node, dict) else None
        if isinstance(node, dict) and leaf in node:
            yield old, new, node[leaf]


def renamed_value(path: str, value: Any) -> str:
    """Return the new name of a value; empty where the value has no new one.

    Args:
        path: Present path of the key.
        value: Value of the key, of any YAML type.
    """
    return RENAMED_VALUES.get((path, str(value)), "")


def translate(tree: dict[str, Any]) -> None:
    """Move every renamed key of `tree`, which an older version stored, to its new place."""
    for old, new, value in list(renamed_keys(tree)):
        section, leaf = _place(tree, old)
        del section[leaf]
        section, leaf = _place(tree, new)
        if isinstance(value, dict):
            # The renamed keys of this section have moved already; move the others to them.
            section.setdefault(leaf, {}).update(value)
        else:
            section[leaf] = renamed_value(new, value) or value


def _place(tree: dict[str, Any], path: str) -> tuple[dict[str, Any], str]:
    """Return the mapping of the key at `path`, made where it is missing, and the key's name."""
    *sections, leaf = path.split(".")
    for name in sections:
        tree = tree.setdefault(name, {})
    return tree, leaf
