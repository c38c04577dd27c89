"""README of an exported policy: inputs, outputs, and how to load it."""

from collections.abc import Mapping, Sequence

import numpy as np

from seedbed.config import Experiment
from seedbed.packed import PackedSpec
from seedbed.runtime.text import counted
from seedbed.spec import ActionSpec, EnvironmentSpec

_INPUTS = {
    "observation": "the newest {frame_stack} of {frame}, joined along the last axis, oldest "
    "first; frames from before the episode are zeros; the numbers are those of `seedbed.make_env`: "
    "raw, but a picture in floats or integers of another range than bytes is divided by the "
    "largest magnitude of its space",
    "previous_action": "the action before; {none} on an episode's first row",
    "previous_reward": "the reward before, raw; 0 on an episode's first row",
    "state": "what the call before gave as `state`; zeros on an episode's first row",
}
_BYTES = "the bytes of {0}, one array after the other, C order and little endian"
_LOGITS = {
    "discrete": "of the {action}: sample from their softmax, or take the largest",
    "multi_discrete": "of the {action}, side by side: of each part, take the largest",
    "continuous": "of the {action}: means, then logarithms of standard deviations; act with the "
    "means, clipped to [-1, 1] (or their tanh, with `squash`), scaled to the bounds of the space",
}
_OUTPUTS = {
    "logits": "{logits}",
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
    changes: Sequence[str] = (),
) -> str:
    """Return the page in Markdown.

    Args:
        inputs: name to "dtype[shape]", without the leading axis N.
        outputs: as `inputs`.
        imports: `module:Class` that must be imported before the policy is loaded.
        experiment: the experiment of the training.
        spec: the environment of the training.
        changes: settings that were changed in the middle of the training, in words.
    """
    packed = isinstance(spec.observation, PackedSpec)
    words = {
        "frame_stack": counted(experiment.learner.frame_stack, "frame"),
        "frame": _BYTES.format(spec.observation) if packed else spec.observation,
        "none": 0 if spec.action.kind == "continuous" else -1,
        "logits": _LOGITS[spec.action.kind].format(action=spec.action),
    }
    lines = [f"# A policy for {spec.name}", "", f"From the experiment `{experiment.name}`.", ""]
    if changes:
        lines += ["Settings that changed in the middle of the training:", ""]
        lines += [*(f"- {change}" for change in changes), ""]
    for title, rows, about in (("Inputs", inputs, _INPUTS), ("Outputs", outputs, _OUTPUTS)):
        lines += [f"| {title.lower()} | of one environment | |", "|---|---|---|"]
        lines += [f"| `{n}` | {row} | {about[n].format(**words)} |" for n, row in rows.items()]
        lines.append("")
    needed = [f"from {m} import {c}" for m, c in (i.split(":") for i in imports)]
    filled = "" if spec.action.kind == "continuous" else "previous_action"
    zeros = [
        f'    "{name}": np.{"full" if name == filled else "zeros"}'
        f"((1, {', '.join(row[row.index('[') + 1 : -1].split(', '))}), "
        f'{"-1, " if name == filled else ""}"{row[: row.index("[")]}"),'
        for name, row in inputs.items()
    ]
    lines += [
        f"An action lasts {counted(spec.action_repeat, 'emulator frame')}. Every input and output "
        "has a leading axis N, one row an environment.",
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
        *_choice("q" if "q" in outputs else "logits", spec.action),
        "```",
        "",
    ]
    return "\n".join(line.replace("(1, ), ", "(1,), ") for line in lines)


def _choice(output: str, action: ActionSpec) -> list[str]:
    """Return the lines that take the best action."""
    if action.kind == "continuous":
        return [f'action = np.clip(outputs["{output}"][:, : {action.sizes[0]}], -1, 1)']
    if action.kind == "discrete":
        return [f'action = np.argmax(outputs["{output}"], axis=-1)']
    ends = np.cumsum(action.sizes).tolist()[:-1]
    return [
        f'parts = np.split(outputs["{output}"], {ends}, axis=-1)',
        "action = np.stack([np.argmax(part, axis=-1) for part in parts], axis=-1)",
    ]
