"""Files of a dumped unroll: the arrays, a page that names them, and a picture."""

import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seedbed.config import Experiment
from seedbed.runtime.exit_codes import ConfigError
from seedbed.runtime.files import replacing
from seedbed.spec import FIRST, LIFE_LOST, TERMINATED, TRUNCATED

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
# Flags by rising weight: a step is framed in the colour of the last one that it has.
FLAGS = {
    "life_lost": "tab:purple",
    "first": "tab:green",
    "truncated": "tab:orange",
    "terminated": "tab:red",
}
_STEPS_PER_LINE, _MOST_STEPS = 11, 44
# Numbers of a vector observation that are drawn.
_NUMBERS = 8


class UnrollDump(NamedTuple):
    """One training batch, in words: its experiment, and the parameters that acted or what it did.

    Attributes:
        arrays: Those of `MEANINGS` that there are, and `behaviour_*`.
        title: The experiment.
        origin: Where the batch is from.
    """

    arrays: Arrays
    title: str
    origin: str


def title_of(experiment: Experiment) -> str:
    """Return the experiment's name and what it trains, in words."""
    trains = (experiment.environment.id, experiment.agent, experiment.learner.network)
    return f"{experiment.name} ({', '.join(trains)})"


def write_unroll(dump: UnrollDump, directory: Path) -> None:
    """Write `unroll.npz`, without pickle, and `README.txt`."""
    directory.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(directory / "unroll.npz", **dump.arrays)  # type: ignore[arg-type]
    (directory / "README.txt").write_text(readme(dump))


def batch_arrays(batch: Arrays, version: NDArray[np.float64]) -> Arrays:
    """Return the arrays of a dump that a training batch has without its model.

    Args:
        batch: The batch's arrays by name, as the training step takes them.
        version: [B], mean version of the parameters that acted.
    """
    arrays = {name.replace("behaviour/", "behaviour_"): array for name, array in batch.items()}
    flags = batch["flags"][len(batch["flags"]) - len(batch["reward"]) :]
    bits = {"terminated": TERMINATED, "truncated": TRUNCATED, "life_lost": LIFE_LOST}
    arrays |= {name: flags & bit != 0 for name, bit in bits.items()}
    first = arrays["first"] = flags & FIRST != 0
    previous = np.concatenate([batch["previous_action"][None], batch["action"]])
    arrays["previous_action"] = np.where(first, -1, previous)
    arrays["previous_reward"] = np.where(first, np.float32(0), batch["reward"])
    return {**arrays, "version": version}


def save_batch(path: Path, dump: UnrollDump) -> None:
    """Write a dump to one file, whole or not at all.

    Args:
        path: The file; its name ends with `.npz`.
        dump: The dump; its words are arrays, too.

    Raises:
        OSError: The file cannot be written.
    """
    words = {"title": np.array(dump.title), "origin": np.array(dump.origin)}
    with replacing(path) as temporary:
        np.savez_compressed(temporary, **dump.arrays, **words)  # type: ignore[arg-type]


def load_batch(path: Path) -> UnrollDump:
    """Read a file of `save_batch`.

    Raises:
        SeedbedError: CONFIG: the file is no such file.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
            return UnrollDump(arrays, str(arrays.pop("title")), str(arrays.pop("origin")))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{path} is no batch of a quarantine: {error}") from error


def readme(dump: UnrollDump) -> str:
    """Return a page that names the arrays and how to open them."""
    arrays = dump.arrays
    stack = len(arrays["observation"]) - len(arrays["reward"]) + 1
    text = f"""\
One training batch of {dump.title},
with {dump.origin}.

    import numpy as np
    unroll = np.load("unroll.npz")
    unroll["reward"][:, 0]  # of the first environment, over time

T = {len(arrays["action"])} steps of an unroll or sequence, R = T + 1, \
B = {arrays["action"].shape[1]} environments,
K = {stack} frames of a stack, S = {arrays["state"].shape[-1]} numbers of \
recurrent state, A actions.
Step t is what was received with observation t, and action[t] what was chosen on it.

"""
    for name in [*(x for x in MEANINGS if x in arrays), *sorted(arrays.keys() - MEANINGS.keys())]:
        array = arrays[name]
        text += f"{name}: {array.dtype} {list(array.shape)}\n    {MEANINGS.get(name, _BEHAVIOUR)}\n"
    return text


def eventful_envs(arrays: Arrays, count: int) -> list[int]:
    """Return the environments with most ends of episodes, lost lives and rewards.

    Args:
        arrays: arrays of a dump, by name.
        count: number of environments to return.
    """
    events = sum(arrays[name].sum(axis=0) for name in FLAGS)
    score = 100 * events + np.count_nonzero(arrays["reward"], axis=0)
    return sorted(np.argsort(-score, kind="stable")[:count].tolist())


def shown_steps(arrays: Arrays, env: int) -> range:
    """Return all steps, or as many as fit a page, around the first flag of an environment.

    Args:
        arrays: arrays of a dump, by name.
        env: index of the environment.
    """
    steps = arrays["reward"].shape[0]
    events = np.flatnonzero(sum(arrays[name][:, env] for name in FLAGS))
    middle = int(events[0]) if len(events) else 0
    start = max(0, min(middle - _MOST_STEPS // 2, steps - _MOST_STEPS))
    return range(start, min(steps, start + _MOST_STEPS))


def caption(arrays: Arrays, t: int, env: int) -> str:
    """Describe a step: its number and flags, the reward, and the action that was chosen on it.

    Args:
        arrays: arrays of a dump, by name.
        t: index of the step.
        env: index of the environment.
    """
    flags = [name.upper() for name in FLAGS if arrays[name][t, env]]
    lines = [" ".join([f"t={t}", *flags]), f"r={arrays['reward'][t, env]:+g}"]
    if t == len(arrays["action"]):
        return "\n".join([*lines, "(bootstrap)"])
    action = f"a={arrays['action'][t, env]}"
    if arrays["first"][t + 1, env]:
        # The episode has ended, so the action has no effect.
        lines[1] += f"  ({action})"
    else:
        lines[1] += f"  {action}"
        if "log_rho" in arrays:
            lines.append(f"log ρ={arrays['log_rho'][t, env]:+.4f}")
    return "\n".join(lines)


def plot_unroll(arrays: Arrays, title: str, file: Path, envs: int = 3) -> None:
    """Draw some environments over time: observations, and a caption below each step.

    Args:
        arrays: arrays of a dump, by name.
        title: title of the picture.
        file: where the picture goes; its suffix names the format.
        envs: number of environments.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    lines = [
        (env, shown[i : i + _STEPS_PER_LINE])
        for env in eventful_envs(arrays, envs)
        for shown in [shown_steps(arrays, env)]
        for i in range(0, len(shown), _STEPS_PER_LINE)
    ]
    figure = Figure(figsize=(17.0, 2.4 * len(lines) + 0.9), dpi=100, layout="constrained")
    figure.suptitle(title, fontsize=13)
    all_axes = figure.subplots(len(lines), 1, squeeze=False).flat
    for axes, (env, steps) in zip(all_axes, lines, strict=True):
        _draw_observations(axes, arrays, env, steps)
        for i, t in enumerate(steps):
            flags = [name for name in FLAGS if arrays[name][t, env]]
            colour, width = (FLAGS[flags[-1]], 4) if flags else ("lightgray", 1)
            axes.axvspan(i + 0.03, i + 0.97, fill=False, edgecolor=colour, linewidth=width)
        axes.set_xlim(0, _STEPS_PER_LINE)
        labels = [caption(arrays, t, env) for t in steps]
        axes.set_xticks(np.arange(len(steps)) + 0.5, labels=labels, fontsize=9)
        axes.tick_params(length=0)
        version = arrays["version"][env]
        axes.set_title(f"environment {env}, version {version:g} acted", loc="left", fontsize=9)
    with replacing(file) as temporary:
        figure.savefig(temporary)


def _draw_observations(axes: Any, arrays: Arrays, env: int, steps: range) -> None:
    """Draw the observations of some steps, each one unit wide."""
    context = len(arrays["observation"]) - len(arrays["reward"])
    seen = arrays["observation"][context + steps.start : context + steps.stop, env]
    if seen.ndim > 2:
        # The newest frame, or the colours.
        if seen.ndim == 4 and seen.shape[-1] not in (3, 4):
            seen = seen[..., -1]
        strip = np.concatenate(list(seen), axis=1)
        extent = (0, len(steps), 0, seen.shape[1] / seen.shape[2])
        top = 255 if seen.dtype == np.uint8 else None
        axes.imshow(strip, cmap="gray", vmin=0 if top else None, vmax=top, extent=extent)
        axes.set_yticks([])
        return
    starts = np.flatnonzero(arrays["first"][steps.start : steps.stop, env])
    x = np.insert(np.arange(len(steps)) + 0.5, starts, np.nan)  # no line between episodes
    for i in range(min(seen.reshape(len(steps), -1).shape[1], _NUMBERS)):
        values = seen.reshape(len(steps), -1)[:, i].astype(float)
        axes.plot(x, np.insert(values, starts, np.nan), marker=".", label=f"observation[{i}]")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
