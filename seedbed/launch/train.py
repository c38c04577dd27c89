"""Training from a notebook or a script."""

import json
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict, cast

from seedbed.config.load import (
    default_run_directory,
    dump_experiment,
    load_experiment,
    parse_experiment,
    run_of,
)
from seedbed.config.schema import Experiment
from seedbed.launch.supervisor import describe_exit, last_cause, start_seedbed
from seedbed.runtime.exit_codes import ExitCode, SeedbedError

_LAST_LINES = 50


class RunSummary(TypedDict):
    """Summary of a run. It has more numbers than these; None is where nothing was measured."""

    env_frames: int
    trained_frames: int
    inserted_frames: int
    discarded_frames: int
    updates: int
    skipped_updates: int
    episodes: int
    abandoned_episodes: int
    seconds: float
    dollars: float
    env_fps: float | None  # emulator frames a second
    mean_return: float | None  # of the newest episodes of the training
    mean_return_episodes: int
    evaluation: dict[str, Any] | None  # the last one
    stop_reason: str
    learners: NotRequired[list[dict[str, Any] | None]]  # of a run of several learners


def train(
    experiment: Experiment | str | Path,
    run_dir: str | Path | None = None,
    overrides: Sequence[str] = (),
    change: str = "",
) -> RunSummary:
    """Train an experiment on this machine until a stop condition, as `seedbed train` does.

    The learner and its actors are processes of their own, so that this process keeps its backend
    and its signals. Progress goes to `sys.stderr`. The same call again resumes the run, and
    returns its summary at once when it has finished. `KeyboardInterrupt` stops the run with a last
    checkpoint.

    Args:
        experiment: An `Experiment`, the path of a YAML file, or the name of an experiment that
            comes with the package.
        run_dir: Run directory; None for `runs/NAME` of the experiment.
        overrides: `"a.b=c"` each; the value is YAML.
        change: Digest of the one change of settings that you accept for a run that has begun, as
            the refusal (`RESUME_REFUSED`) prints it.

    Raises:
        SeedbedError: with the exit code of `seedbed train`, and the cause that it has logged.
    """
    own = None if isinstance(experiment, Experiment) else run_of(experiment)
    if isinstance(experiment, Experiment):
        resolved = parse_experiment(dump_experiment(experiment, named_only=True), overrides)
        default = Path("runs") / resolved.name
    else:
        resolved = load_experiment(experiment, overrides)
        default = default_run_directory(experiment, resolved.name)
    with tempfile.TemporaryDirectory(prefix="seedbed-") as scratch:
        file = Path(scratch) / f"{resolved.name}.yaml"
        file.write_text(dump_experiment(resolved, named_only=True))
        path = run_dir or default
        arguments = ["train", str(file), "--run-dir", str(path)]
        if own is not None:  # its file has every key: what is named is in its history
            arguments[1] = str(own)
            arguments += [word for setting in overrides for word in ("--set", setting)]
        arguments += ["--change", change] if change else []
        arguments += ["--called-as", _call(experiment, run_dir, overrides)]
        return cast(RunSummary, json.loads(_run(arguments, Path(scratch) / "summary.json")))


def _call(
    experiment: Experiment | str | Path, run_dir: str | Path | None, overrides: Sequence[str]
) -> str:
    """Return the call in Python, for messages; an `Experiment` has the name `experiment`."""
    words = ["experiment" if isinstance(experiment, Experiment) else repr(str(experiment))]
    words += [f"run_dir={str(run_dir)!r}"] if run_dir is not None else []
    words += [f"overrides={list(overrides)!r}"] if overrides else []
    return f"seedbed.train({', '.join(words)})"


def _run(arguments: Sequence[str], output: Path) -> str:
    """Run `seedbed` with its stderr on `sys.stderr`; return its stdout."""
    lines: deque[str] = deque(maxlen=_LAST_LINES)
    with output.open("wb") as stdout:
        process = start_seedbed(
            *arguments,
            stdout=stdout,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            lines.append(line)
            sys.stderr.write(line)
        code = process.wait()
    except BaseException:
        process.terminate()
        process.communicate()  # until the last checkpoint is written
        raise
    if code:
        known = ExitCode(code) if code in set(ExitCode) else ExitCode.INTERNAL
        cause = last_cause("".join(lines)).removeprefix("seedbed: ")
        raise SeedbedError(known, f"{cause} (`seedbed train` ended with {describe_exit(code)})")
    return output.read_text()
