"""Picture of a dumped unroll. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from seedbed.analysis.unroll_files import Arrays

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


def eventful_envs(arrays: Arrays, count: int) -> list[int]:
    """Return the environments with most ends of episodes, lost lives and rewards."""
    events = sum(arrays[name].sum(axis=0) for name in FLAGS)
    score = 100 * events + np.count_nonzero(arrays["reward"], axis=0)
    return sorted(np.argsort(-score, kind="stable")[:count].tolist())


def shown_steps(arrays: Arrays, env: int) -> range:
    """Return all steps, or as many as fit a page, around the first flag of an environment."""
    steps = arrays["reward"].shape[0]
    events = np.flatnonzero(sum(arrays[name][:, env] for name in FLAGS))
    middle = int(events[0]) if len(events) else 0
    start = max(0, min(middle - _MOST_STEPS // 2, steps - _MOST_STEPS))
    return range(start, min(steps, start + _MOST_STEPS))


def caption(arrays: Arrays, t: int, env: int) -> str:
    """Describe a step: its number and flags, the reward, and the action that was chosen on it."""
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
    figure.savefig(file)


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
