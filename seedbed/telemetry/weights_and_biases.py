"""Weights & Biases, imported only when `logging.wandb.enabled`."""

import importlib
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from seedbed.config.schema import Experiment
from seedbed.runtime.exit_codes import ConfigError
from seedbed.runtime.install import how_to_install
from seedbed.telemetry.curves import Points

RUN_ID_FILE = "wandb-run-id"


class WandbRun:
    """One W&B run for one run directory, over all restarts.

    The id is `<experiment's name>-<8 hex digits>`, drawn once and stored in the file
    `wandb-run-id` of the run directory. So a resumed run continues the same W&B run
    (`resume="allow"`), and a new run directory is a new W&B run. Without a run directory the id is
    the experiment's name.
    """

    def __init__(self, experiment: Experiment, run_dir: Path | None) -> None:
        """Start or resume the run.

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
        settings = experiment.logging.wandb
        self._run: Any = wandb.init(
            project=settings.project,
            group=settings.group or None,
            name=run_dir.name if run_dir else experiment.name,
            id=run_id(experiment.name, run_dir),
            resume="allow",
            mode=settings.mode,
            dir=str(run_dir) if run_dir else None,
            config=experiment.model_dump(mode="json"),
        )
        self._run.define_metric("env_frames")
        self._run.define_metric("*", step_metric="env_frames")

    def log(self, points: Iterable[Points]) -> None:
        """Log the points of one interval, over `env_frames`, by their tags in TensorBoard."""
        for frames, values in points:
            self._run.log({"env_frames": frames, **values})

    def close(self, exit_code: int = 0) -> None:
        """Finish the run, after its uploads.

        Args:
            exit_code: Exit code of the run, as the service shows it.
        """
        self._run.finish(exit_code=exit_code)


def run_id(name: str, run_dir: Path | None) -> str:
    """Return the run directory's W&B id, drawn at the first call."""
    if run_dir is None:
        return name
    path = run_dir / RUN_ID_FILE
    if not path.exists():
        path.write_text(f"{name}-{secrets.token_hex(4)}\n")
    return path.read_text().strip()
