"""The lines with which a run ends: why, what its evaluation says, what to do next."""

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seedbed.runs.directory import RunDirectory
from seedbed.runs.trust import foreign
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.formats import duration, money, si_number, significant
from seedbed.runtime.paths import shown
from seedbed.runtime.text import counted

_ROW = "  {:<12} {}"


def ending(summary: Mapping[str, Any], directory: RunDirectory, from_python: bool = False) -> str:
    """Return the lines.

    Args:
        summary: The run's summary.
        directory: The run directory.
        from_python: `seedbed.train` has started the run, so the next steps are Python's too.
    """
    frames = counted(si_number(summary["env_frames"]), "frame")
    done = f"{frames}, {counted(summary['updates'], 'update')}"
    cost = f"{duration(summary['seconds'])} of training, {money(summary['dollars'])}"
    rows = [
        ("evaluation", _evaluated(summary)),
        ("next", _next(summary, directory, from_python)),
    ]
    return "\n".join(
        [
            f"seedbed: ended by {summary['stop_reason']}; {done}, {cost}",
            *(_ROW.format(*row) for row in rows),
        ]
    )


def at_end(summary: Mapping[str, Any], directory: RunDirectory, from_python: bool = False) -> str:
    """Return the lines of a command that finds the run at its end, and changes nothing.

    Args:
        summary: The run's summary.
        directory: The run directory.
        from_python: As of `ending`.
    """
    met = directory.met
    assert met is not None
    measured = ("evaluation", "learner", directory.experiment.agent)
    unused = [each for each in directory.changes if each.key.partition(".")[0] in measured]
    return "\n".join(
        [
            f"seedbed: {shown(directory.path)} is at its end ({met.text}): nothing to do",
            _ROW.format("evaluation", _evaluated(summary)),
            *(_ROW.format("not used", f"{each.text}: the run is over") for each in unused),
            _ROW.format("to resume", f"raise stop.{met.key}; --restart fresh begins a new run"),
            _ROW.format("next", _next(summary, directory, from_python)),
        ]
    )


def _evaluated(summary: Mapping[str, Any]) -> str:
    evaluation = summary["evaluation"]
    trained = f"none; mean return {significant(summary['mean_return'])} in training"
    if not evaluation:
        return trained
    mean, spread = significant(evaluation["mean"]), evaluation["standard_error"]
    text = f"mean return {mean}" + (f" ± {significant(spread)}" if spread is not None else "")
    text += f" over {counted(evaluation['episodes'], 'episode')}"
    if evaluation["updates"] != summary["updates"] and "learners" not in summary:
        text += f", of the checkpoint at update {evaluation['updates']:,}"
    return text


def _next(summary: Mapping[str, Any], directory: RunDirectory, from_python: bool) -> str:
    path = directory.path
    trusts = any(foreign(directory.experiment))  # whoever has run that code may do so again
    reason = str(summary["stop_reason"])
    run, command = shlex.quote(shown(path)), program()
    if not summary["updates"]:
        again = f"{command} train {run}"
        counted_by, _, limit = reason.rpartition(" of ")
        if counted_by.startswith("stop."):
            again += f" --set {counted_by.partition(':')[0]}={10 * float(limit):.10g}"
        lines = [again, f"{command} status {run}", f"the logs are in {shown(path / 'logs')}"]
        return f"\n{'':<15}".join(lines)
    again = "the same command resumes; " * reason.startswith("signal ")
    own = run + " --trust" * trusts
    words = [f"evaluate {own}", f"export {own} policy", f"plot {run}", f"status {run}"]
    lines = [f"{command} {word}" for word in words]
    if from_python:
        trusted = ", trust=True" * trusts
        lines.insert(0, f"seedbed.load_policy({shown(path)!r}{trusted}).play()")
    return again + f"\n{'':<15}".join(lines)


def program() -> str:
    """Return the words that call this program again, for people to copy."""
    script = Path(sys.argv[0])
    if script.name != "seedbed":  # `seedbed.train`, or `python -m`
        script = Path(sys.executable).with_name("seedbed")
    if not script.is_file():
        return f"{shown(Path(sys.executable))} -m seedbed"
    found = shutil.which("seedbed")
    if found is not None and Path(found).resolve() == script.resolve():
        return "seedbed"
    return os.path.relpath(script)


def check_frames(summary: Mapping[str, Any]) -> None:
    """Refuse to call a run a success that has stepped no environment, or has made no update.

    Raises:
        SeedbedError: NO_FRAMES, NO_UPDATES; INTERRUPTED or TERMINATED, where a signal ended it
            before the first update.
    """
    reason, frames = str(summary["stop_reason"]), summary["env_frames"]
    if summary["updates"]:
        return
    code = ExitCode.NO_UPDATES if frames else ExitCode.NO_FRAMES
    if reason.startswith("signal "):
        code = ExitCode.INTERRUPTED if reason.endswith("SIGINT") else ExitCode.TERMINATED
    raise SeedbedError(
        code,
        f"the run ended before its first update, after {counted(frames, 'frame')}, by {reason}: "
        "nothing was learned",
    )
