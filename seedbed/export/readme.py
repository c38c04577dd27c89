"""README of an exported policy: inputs, outputs, and how to load it."""

from collections.abc import Mapping, Sequence

from seedbed.config import Experiment
from seedbed.spec import EnvironmentSpec

_INPUTS = {
    "observation": "the newest {frame_stack} frames of {frame}, joined along the last axis, oldest "
    "first; frames from before the episode are zeros; raw values, nothing scaled",
    "previous_action": "the action before; -1 on an episode's first row",
    "previous_reward": "the reward before, raw; 0 on an episode's first row",
    "state": "what the call before gave as `state`; zeros on an episode's first row",
}
_OUTPUTS = {
    "logits": "of the {actions} actions: sample from their softmax, or take the largest",
    "value": "the expected discounted return",
    "state": "goes into the next call",
    "q": "the value of each action",
}


def readme(
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
    imports: Sequence[str],
    experiment: Experiment,
    spec: EnvironmentSpec,
) -> str:
    """Return the page in Markdown.

    Args:
        inputs: name to "dtype[shape]", without the leading axis N.
        outputs: as `inputs`.
        imports: `module:Class` that must be imported before the policy is loaded.
        experiment: the experiment of the training.
        spec: the environment of the training.
    """
    words = {
        "frame_stack": experiment.learner.frame_stack,
        "frame": spec.observation,
        "actions": spec.actions,
    }
    lines = [f"# A policy for {spec.name}", "", f"From the experiment `{experiment.name}`.", ""]
    for title, rows, about in (("Inputs", inputs, _INPUTS), ("Outputs", outputs, _OUTPUTS)):
        lines += [f"| {title.lower()} | of one environment | |", "|---|---|---|"]
        lines += [f"| `{n}` | {row} | {about[n].format(**words)} |" for n, row in rows.items()]
        lines.append("")
    needed = [f"from {m} import {c}" for m, c in (i.split(":") for i in imports)]
    zeros = [
        f'    "{name}": np.{"full" if name == "previous_action" else "zeros"}'
        f"((1, {', '.join(row[row.index('[') + 1 : -1].split(', '))}), "
        f'{"-1, " if name == "previous_action" else ""}"{row[: row.index("[")]}"),'
        for name, row in inputs.items()
    ]
    lines += [
        f"An action lasts {spec.action_repeat} emulator frame(s). Every input and output has a "
        "leading axis N, one row an environment.",
        "",
        "```python",
        "import keras",
        "import numpy as np",
        *needed,
        "",
        'policy = keras.saving.load_model("policy.keras")',
        "outputs = policy({",
        *zeros,
        "})",
        f'action = np.argmax(outputs["{"q" if "q" in outputs else "logits"}"], axis=-1)',
        "```",
        "",
    ]
    return "\n".join(line.replace("(1, ), ", "(1,), ") for line in lines)
