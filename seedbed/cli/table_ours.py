"""What we measured, for `seedbed table`: from run directories and from the JSON of a benchmark."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seedbed.config.schema import Experiment
from seedbed.runs.layout import learner_directories
from seedbed.runs.progress import load_progress
from seedbed.runs.resume import read_stored
from seedbed.runtime.exit_codes import ExitCode, RunDirectoryError, SeedbedError
from seedbed.telemetry.status import STATUS_FILE, read_status

_ARCHITECTURES = {"learner": "SEED", "actor": "IMPALA"}


class Measured(NamedTuple):
    """One measurement. None is not measured, or not said.

    Attributes:
        source: Run directory, or file and case.
        architecture: SEED, or IMPALA where the actors run the network.
        environment: Its id.
        model: Agent and network.
        envs: Environments of all actors.
        batch_size: Unrolls of a training batch.
        frames_per_s: Environment frames a second.
        cpus: CPUs of the machine, or those that the run charges.
        learner_cpus: Of these the learner's, by its CPU time; the others are the actors'.
        accelerators: Accelerators that the run charges.
        machine_type: Key of the price tables' machines, where the file says one.
        round_trip_ms_p50: Median end-to-end latency, milliseconds.
        round_trip_ms_p99: Its 99th percentile.
        metered_dollars: US dollars of 1e9 frames by the cost meter of a release.
        quick: A benchmark of `--quick`, which shows that it works and not how fast.
    """

    source: str
    architecture: str
    environment: str
    model: str
    envs: int | None
    batch_size: int | None
    frames_per_s: float | None
    cpus: float | None
    learner_cpus: float | None
    accelerators: int
    machine_type: str | None
    round_trip_ms_p50: float | None
    round_trip_ms_p99: float | None
    metered_dollars: float | None
    quick: bool = False


def read_run(run_dir: Path) -> Measured:
    """Read a run that ended or goes on.

    Raises:
        SeedbedError: RUN_DIRECTORY, it is none, or it is of several learners.
    """
    if learners := learner_directories(run_dir):
        names = ", ".join(str(path) for path in learners)
        raise RunDirectoryError(
            f"--run: {run_dir} is of {len(learners)} learners: name one of {names}"
        )
    try:
        status = read_status(run_dir)
        experiment = read_stored((run_dir / "experiment.yaml").read_text(), str(run_dir))
    except (OSError, ValueError) as error:
        raise RunDirectoryError(
            f"--run: cannot read {STATUS_FILE} and experiment.yaml of {run_dir} ({error}): name "
            "the directory of a run, such as runs/cartpole-vtrace"
        ) from error
    counters, numbers, charged = status["counters"], status["numbers"], status["charged"]
    columns = load_progress(run_dir)
    metered = charged["metered"]
    seconds = counters["seconds"]
    return Measured(
        source=str(run_dir),
        architecture=_ARCHITECTURES[experiment.learner.inference.location],
        environment=status["environment"],
        model=_model(experiment),
        envs=_largest(columns.get("environments")),
        batch_size=experiment.learner.batch_size,
        frames_per_s=counters["env_frames"] / seconds if seconds else None,
        cpus=None if metered else charged["cpus"],
        learner_cpus=None if metered else _mean_in_training(columns),
        accelerators=charged["accelerators"],
        machine_type=None,
        round_trip_ms_p50=numbers.get("round_trip_ms_p50"),
        round_trip_ms_p99=numbers.get("round_trip_ms_p99"),
        metered_dollars=numbers["dollars_per_billion_frames"] if metered else None,
    )


def read_bench(path: Path) -> list[Measured]:
    """Read the end-to-end speeds of `seedbed bench`: `system`, `baseline` and `accelerator`.

    Args:
        path: The JSON.

    Raises:
        SeedbedError: USAGE, it cannot be read, or has none of them.
    """
    try:
        results: dict[str, Any] = json.loads(path.read_text())
        parts = (_system, _baseline, _accelerator)
        found = [one for part in parts for one in part(path, results)]
    except OSError as error:
        text = f"--bench: {path} cannot be read: {error.strerror}"
        raise SeedbedError(ExitCode.USAGE, text) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        text = f"--bench: {path} is no JSON of `seedbed bench --json FILE.json`"
        raise SeedbedError(ExitCode.USAGE, text) from error
    if not found:
        raise SeedbedError(
            ExitCode.USAGE,
            f"--bench: {path} has no end-to-end speed: `seedbed bench system --json FILE.json` "
            "measures one",
        )
    return found


def _system(path: Path, results: dict[str, Any]) -> Iterator[Measured]:
    for case in results.get("system_efficiency", {}).get("cases", []):
        cpu_us = [case[f"{part}_cpu_us"]["median"] for part in ("env", "infer", "train")]
        cpus = results["machine"]["cores"]
        yield Measured(
            source=f"{path.name}: {case['network']}",
            architecture="SEED",
            environment="atari:Pong",
            model=f"vtrace, {case['network']}",
            envs=case["numbers"].get("environments"),
            batch_size=None,
            frames_per_s=case["env_fps"]["median"],
            cpus=cpus,
            learner_cpus=cpus * sum(cpu_us[1:]) / sum(cpu_us),
            accelerators=0,
            machine_type=None,
            round_trip_ms_p50=case.get("round_trip_ms_p50", {}).get("median"),
            round_trip_ms_p99=case.get("round_trip_ms_p99", {}).get("median"),
            metered_dollars=None,
            quick=results.get("quick", False),
        )


def _baseline(path: Path, results: dict[str, Any]) -> Iterator[Measured]:
    part = results.get("baseline", {})
    for case in part.get("cases", []):
        yield Measured(
            source=f"{path.name}: {case['system']}, {case['model']}",
            architecture="SEED" if case["system"] == "seed" else "IMPALA",
            environment="atari:Pong",
            model=f"impala_deep, {case['model']}",
            envs=case["environments"],
            batch_size=None,
            frames_per_s=case["env_fps"]["median"],
            cpus=part["cores"],
            learner_cpus=None,
            accelerators=0,
            machine_type=None,
            round_trip_ms_p50=case["wait_ms_p50"]["median"],
            round_trip_ms_p99=case["wait_ms_p99"]["median"],
            metered_dollars=None,
            quick=results.get("quick", False),
        )


def _accelerator(path: Path, results: dict[str, Any]) -> Iterator[Measured]:
    machine = results.get("parts", {}).get("doctor", {}).get("machine", {})
    used = sum(not kind.startswith("cpu") for kind in machine.get("kinds", []))
    for name, case in results.get("parts", {}).get("end_to_end", {}).items():
        yield Measured(
            source=f"{path.name}: {name}",
            architecture="SEED",
            environment=case.get("environment", name.split("/")[1]),
            model=case["agent"],
            envs=case["environments"],
            batch_size=None,
            frames_per_s=case["env_frames_per_s"],
            cpus=machine.get("cores"),
            learner_cpus=None,
            accelerators=used,
            machine_type=results.get("machine_type"),
            round_trip_ms_p50=case.get("round_trip_ms_p50"),
            round_trip_ms_p99=case.get("round_trip_ms_p99"),
            metered_dollars=None,
            quick=results.get("quick", False),
        )


def _model(experiment: Experiment) -> str:
    return f"{experiment.agent}, {experiment.learner.network}"


def _largest(column: Any) -> int | None:
    known = [] if column is None else column[np.isfinite(column)]
    return int(max(known)) if len(known) else None


def _mean_in_training(columns: dict[str, Any]) -> float | None:
    """Return the learner's mean CPUs from the first update on."""
    if "learner_cpu_cores" not in columns:
        return None
    cores = columns["learner_cpu_cores"][columns["updates"] > 0]
    cores = cores[np.isfinite(cores)]
    return float(cores.mean()) if cores.size else None
