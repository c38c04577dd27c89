"""What a run has lost so far, by its learner's pods: its own failures, and pods that others took.

A pod that a drain, a reclaim of a Spot node or an eviction takes is no failure of the run, which
resumes any number of times. What counts is in the `Book`, by the pod, so that nothing is counted
twice, whatever view of the cluster follows.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from seedbed.services.sets.book import Entry

if TYPE_CHECKING:
    from seedbed.services.sets.api import Pod


def note_losses(entry: Entry, pods: Sequence["Pod"]) -> bool:
    """Note what the pods of a run's learner tell; return whether it is new.

    Args:
        entry: The run.
        pods: Pods of its learner, also those that have failed.
    """
    before = dict(entry.restarts), list(entry.preempted), dict(entry.pods)
    is_kept = entry.phase in ("starting", "learner", "awake")  # else the pods end with the run
    for pod in sorted(pods, key=lambda one: one.created):
        restarts = pod.restarts + (pod.has_failed and not pod.is_preempted)
        if restarts > entry.restarts.get(pod.uid, 0):
            entry.restarts[pod.uid] = restarts
        lost = [pod.uid] if pod.is_preempted else []
        created, known = entry.pods.get(pod.name, ("", ""))
        if pod.created > created:
            # The learner's StatefulSet makes a pod of the same name where one was taken.
            if is_kept and known and known not in entry.let_go:
                lost.append(known)
            entry.pods[pod.name] = (pod.created, pod.uid)
        entry.preempted += [uid for uid in lost if uid not in entry.preempted]
    return before != (entry.restarts, entry.preempted, entry.pods)


def let_go(entry: Entry) -> None:
    """Note that the pods of a run have ended with it, so that their successors replace none."""
    entry.let_go = [uid for _, uid in entry.pods.values()]
