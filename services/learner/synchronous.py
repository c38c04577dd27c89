"""Agents that train on synchronous batches, such as A2C."""

from seedbed import backends
from seedbed.backends.coordination import HostPlace
from seedbed.config import Experiment
from seedbed.runtime.exit_codes import ExitCode, SeedbedError


def is_synchronous(
    experiment: Experiment, place: HostPlace | None = None, operation_threads: int = 0
) -> bool:
    """Return whether the agent trains on synchronous batches of all environments.

    A `module:Class` agent declares it in its class, whose import imports Keras, so the backend is
    fixed here for it, before anything listens.

    Args:
        experiment: the experiment.
        place: where this host meets the other hosts of its learner; None of one host.
        operation_threads: as of `backends.use`.

    Raises:
        SeedbedError: the agent cannot be loaded, or the settings do not fit such batches.
    """
    if experiment.builtin_options is not None:
        return experiment.builtin_options.synchronous
    learner = experiment.learner
    backends.use(
        learner.backend, learner.deterministic, learner.device, place, learner.precision,
        operation_threads=operation_threads,
    )  # fmt: skip
    from seedbed.factory import agent_and_options

    if not agent_and_options(experiment)[0].synchronous:
        return False
    try:
        experiment.check_synchronous_batches()
    except ValueError as error:
        raise SeedbedError(ExitCode.CONFIG, str(error)) from error
    return True
