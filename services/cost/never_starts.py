"""A learner that never starts: it ends with a fatal exit code, or it has no node and no image."""

from collections.abc import Iterable
from typing import Any

from seedbed.launch.supervisor import last_cause
from seedbed.runtime.exit_codes import FATAL, ExitCode
from seedbed.runtime.text import printable
from seedbed.services.cost.usage import component_of, exit_code_of, own_status

RESTARTS = 3
# The claim of a host that is gone expires, and a learner's volume leaves the node before: so long.
_RESTARTS_IN_USE = 10
_LETTERS = 400  # of the error with which a container has ended


def fatal_end(pods: Iterable[Any]) -> str | None:
    """Return why no restart helps a release; None where its pods may still work.

    One learner or replay shard is enough; of the actors all must end so.

    Args:
        pods: `V1Pod`s of the release.
    """
    failed: list[Any] = []
    working_actors = 0
    for pod in pods:
        component = component_of(pod)
        if _ends_in_vain(pod):
            failed.append(pod)
        elif component == "actor":
            working_actors += 1
    for pod in failed:
        if component_of(pod) in ("learner", "replay") or not working_actors:
            code = ExitCode(exit_code_of(pod) or 0)
            words = f"exit code {code.value} ({code.name}) of {pod.metadata.name}"
            return f"{words}{_last_words(own_status(pod))}"
    return None


def _ends_in_vain(pod: Any) -> bool:
    status = own_status(pod)
    if status is None:
        return False
    enough = _RESTARTS_IN_USE if " is in use by " in _message(status) else RESTARTS
    is_running = status.state is not None and status.state.running is not None
    return (status.restart_count or 0) >= enough and not is_running and exit_code_of(pod) in FATAL


def _last_words(status: Any) -> str:
    """Return the restarts of a container, and the error with which it has ended.

    Once its pod is at zero its log is gone.
    """
    restarts = f", after {status.restart_count} restarts"
    cause = " ".join(map(printable, last_cause(_message(status)).splitlines()))
    return f"{restarts}: {cause[:_LETTERS]}" if cause else restarts


def _message(status: Any) -> str:
    """Return the end of what a container has written before its newest end; empty without one."""
    for state in (status.state, status.last_state):
        if state is not None and state.terminated is not None and state.terminated.message:
            return str(state.terminated.message)
    return ""


class PendingClock:
    """Time since a learner is wanted and none has started: `stop.pending_s`.

    Args:
        pending_s: `stop.pending_s`; 0 is none.
    """

    def __init__(self, pending_s: float) -> None:
        self._pending_s = pending_s
        self._since: float | None = None

    def reason(self, clock: float, wanted: int, learners: Iterable[Any]) -> str | None:
        """Return why the actors are to wait at zero, with both numbers; None where they are not.

        Args:
            clock: Time of the monotonic clock, in seconds.
            wanted: Replicas that the learners' workload asks for.
            learners: Their `V1Pod`s.
        """
        found = list(learners)
        if not wanted or any(has_started(pod) for pod in found):
            self._since = None
            return None
        if self._since is None:
            self._since = clock
        waited_s = clock - self._since
        if not self._pending_s or waited_s < self._pending_s:
            return None
        return (
            f"stop.pending_s: no learner has started for {waited_s:.0f} s of {self._pending_s:g}, "
            f"{_obstacle(found)}"
        )


def has_started(pod: Any) -> bool:
    """Return whether a pod's own container has run."""
    status = own_status(pod)
    states = () if status is None else (status.state, status.last_state)
    return any(
        state is not None and (state.running is not None or state.terminated is not None)
        for state in states
    )


def _obstacle(learners: Iterable[Any]) -> str:
    for pod in learners:
        status = own_status(pod)
        if status is not None and status.state is not None and status.state.waiting is not None:
            waiting = status.state.waiting
            return f"{pod.metadata.name} waits: {printable(waiting.reason or 'unknown')}"
        if not pod.spec.node_name:
            return f"{pod.metadata.name} has no node"
    return "there is no pod"
