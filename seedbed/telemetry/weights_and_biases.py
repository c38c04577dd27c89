"""Weights & Biases, imported only when `logging.wandb.enabled`."""

import importlib
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from seedbed.config.schema import Experiment
from seedbed.runtime.exit_codes import ConfigError
from seedbed.runtime.files import atomic_write
from seedbed.runtime.install import how_to_install
from seedbed.telemetry.aside import Aside
from seedbed.telemetry.curves import Points
from seedbed.telemetry.offline_points import OfflinePoints, Point

RUN_ID_FILE = "wandb-run-id"
STEP_FILE = "wandb-step"


class WandbRun:
    """One W&B run for one run directory, over all restarts.

    The id is `<experiment's name>-<8 hex digits>`, drawn once and stored in the file
    `wandb-run-id` of the run directory. So a resumed run continues the same W&B run
    (`resume="allow"`), and a new run directory is a new W&B run. Without a run directory the id is
    the experiment's name.
    """

    def __init__(self, experiment: Experiment, run_dir: Path | None) -> None:
        """Load the package. The first points start or resume the run, in a thread of its own.

        Raises:
            SeedbedError: CONFIG, the package is not installed.
        """
        try:
            wandb = importlib.import_module("wandb")
        except ImportError as error:
            raise ConfigError(
                f"logging.wandb.enabled is true and wandb cannot be imported ({error}): install "
                f"the extra: {how_to_install('wandb')}; or set it to false"
            ) from error
        self._wandb, self._experiment, self._run_dir = wandb, experiment, run_dir
        self._run: Any = None
        self._step_file = run_dir / STEP_FILE if run_dir else None
        self._step = _read_step(self._step_file)
        is_offline = experiment.logging.wandb.mode == "offline"
        self._points = OfflinePoints(run_dir) if run_dir and is_offline else None
        self._logged = self._step
        self._left = self._points.left() if self._points else []
        self._aside = Aside("wandb", self._log, self._finish)

    def log(self, points: Iterable[Points]) -> None:
        """Log the points of one interval, over `env_frames`, by their tags in TensorBoard.

        Raises:
            Exception: What W&B has raised, now or before; or it does not answer.
        """
        found = []
        for frames, values in points:
            # W&B drops what has an earlier step: of an evaluation, and after a resume.
            self._step = max(self._step + 1, frames)
            found.append((self._step, {"env_frames": frames, **values}))
        try:
            self._keep(found)
        finally:
            self._aside.put(found)

    def close(self) -> None:
        """Finish the run, after its uploads, as far as they take no longer than a few seconds.

        Raises:
            Exception: As `log`.
        """
        self._aside.close()

    def _keep(self, found: Sequence[Point]) -> None:
        if self._step_file:
            atomic_write(self._step_file, f"{self._step}\n")
        if self._points:
            for step, values in found:
                self._points.add(step, values)

    def _log(self, found: Iterable[Point]) -> None:
        if self._run is None:
            self._run = self._begun()
        for step, values in found:
            self._run.log(values, step=step, commit=True)
            self._logged = step

    def _begun(self) -> Any:
        settings, run_dir = self._experiment.logging.wandb, self._run_dir
        run = self._wandb.init(
            project=settings.project,
            group=settings.group or None,
            name=run_dir.name if run_dir else self._experiment.name,
            id=run_id(self._experiment.name, run_dir),
            resume="allow",
            mode=settings.mode,
            dir=str(run_dir) if run_dir else None,
            config=self._experiment.model_dump(mode="json"),
        )
        run.define_metric("env_frames")
        run.define_metric("*", step_metric="env_frames")
        if self._points:
            self._points.begin(Path(run.dir).parent)
        for step, values in self._left:
            run.log(values, step=step, commit=True)
        self._left = []
        return run

    def _finish(self) -> None:
        self._run.finish()
        if self._points and self._logged == self._step:
            self._points.finish()


def _read_step(file: Path | None) -> int:
    """Return the last step of the processes before; -1 before the first one."""
    try:
        return int(file.read_text()) if file else -1
    except (OSError, ValueError):
        return -1


def run_id(name: str, run_dir: Path | None) -> str:
    """Return the run directory's W&B id, drawn at the first call."""
    if run_dir is None:
        return name
    path = run_dir / RUN_ID_FILE
    if not path.exists():
        path.write_text(f"{name}-{secrets.token_hex(4)}\n")
    return path.read_text().strip()
