"""Files of a dumped unroll: the arrays, and a page that names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seedbed.config import Experiment

Arrays = dict[str, NDArray[Any]]

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
