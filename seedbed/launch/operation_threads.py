"""Threads of one operation on a CPU that a learner shares with actors."""

from seedbed.config import Experiment
from seedbed.runtime.limits import usable_cpus


def operation_threads(experiment: Experiment, actors_here: bool) -> int:
    """Return `learner.operation_threads`, or where it is 0 a number that suits this machine.

    Threads that share one operation wait for the last of them. Where actors keep all cores busy,
    that one waits for a core, and the others spin meanwhile.

    Args:
        experiment: the experiment.
        actors_here: the actors run on this machine.

    Returns:
        Threads from 1 on; 0 for as many as there are cores.
    """
    if chosen := experiment.learner.operation_threads:
        return chosen
    if not actors_here:
        return 0
    actor = experiment.actor
    # An actor's groups take turns. Learners that gossip have as many actors each.
    learners = experiment.gossip.replicas * experiment.learner.hosts
    return max(1, int(usable_cpus() / learners - actor.processes * actor.threads))
