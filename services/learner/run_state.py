"""State of a run that a checkpoint holds: how it is described, and how a learner takes it up."""

import logging
from typing import Any

import numpy as np

from seedbed.config import Experiment
from seedbed.config.load import dump_experiment
from seedbed.gossip.membership import Membership
from seedbed.runs.directory import RunDirectory
from seedbed.services.learner.background_evaluation import BackgroundEvaluation
from seedbed.services.learner.components import LearnerComponents
from seedbed.telemetry import Telemetry

log = logging.getLogger(__name__)


class RunState:
    """What goes on after a restart where it was.

    Args:
        experiment: the experiment.
        telemetry: the telemetry, with the counters.
        members: the other learners; None of a single one.
        evaluation: the evaluations on the side.
    """

    def __init__(
        self,
        experiment: Experiment,
        telemetry: Telemetry,
        members: Membership | None,
        evaluation: BackgroundEvaluation,
    ) -> None:
        self._experiment, self._telemetry = experiment, telemetry
        self._members, self._evaluation = members, evaluation

    def resume(self, run: RunDirectory, is_first: bool) -> None:
        """Take up the counts of the run.

        Args:
            run: the open run directory.
            is_first: this host has the counts of the whole learner.
        """
        counters, telemetry = self._telemetry.counters, self._telemetry
        last = run.last_status()  # before telemetry writes its own
        spent = dict(last.get("counters") or {})
        if run.resume_from is not None:
            meta = run.resume_from.meta
            counters.set_from(meta["counters"])
            # Unrolls that were queued or incomplete at the checkpoint are lost.
            kept = counters.inserted_frames or counters.trained_frames
            counters.discarded_frames = counters.env_frames - kept
            telemetry.restore(meta["telemetry"])
            if self._members is not None:
                self._members.restore(meta.get("peers", {}))
            # The evaluation that made it may be newer than the checkpoint.
            self._evaluation.best = run.store.best_evaluation()
            log.info("resumed at frame %d, update %d", counters.env_frames, counters.updates)
        if not is_first:
            return
        # What was learned after the checkpoint is lost. The time and the money are spent.
        counters.seconds = max(counters.seconds, float(spent.get("seconds", 0)))
        dollars = float(spent.get("dollars", 0))
        if dollars >= counters.dollars:
            counters.dollars = dollars
            telemetry.cost.resume(last)

    def load(self, run: RunDirectory, components: LearnerComponents) -> None:
        """Load the arrays of the checkpoint with which the run begins, if any.

        Args:
            run: the open run directory.
            components: the components that take the arrays.
        """
        if run.resume_from is not None:
            components.trainer.load(run.resume_from.arrays)
            updates = self._telemetry.counters.updates
            components.source.resume_sampler(run.resume_from.meta.get("sampler"), updates)
            for acting, step in enumerate(components.inference):
                # No device acts twice alike after a restart.
                step.random = np.random.default_rng((acting, updates))
                if not acting and (state := run.resume_from.meta["random"]):
                    step.random.bit_generator.state = state
        elif run.start_from is not None:
            components.trainer.load(run.start_from.arrays, optimizer=False)

    def meta(self, components: LearnerComponents) -> dict[str, Any]:
        """Return what a checkpoint stores besides arrays; JSON.

        Args:
            components: the components, with the state of their random numbers.
        """
        origin = self._telemetry.provenance
        return {
            "counters": self._telemetry.whole_counters().to_json(),
            "telemetry": self._telemetry.to_json(),
            "spec": components.spec.to_json(),
            "peers": self._members.to_json() if self._members is not None else {},
            "random": self._random_state(components),
            "sampler": components.source.sampler_state(),
            "experiment": dump_experiment(self._experiment),
            "best_evaluation": self._evaluation.best,
            "changes": origin["changes"] if origin else [],
        }

    def _random_state(self, components: LearnerComponents) -> Any:
        """Return the state of the random numbers of acting; None where actors act themselves."""
        if not components.inference:
            return None
        return components.inference[0].random.bit_generator.state
