"""The brake outside the meter, which a CronJob applies: it needs the state and no prices."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from seedbed.services.cost.brake import BY_VALUE, Brake
from seedbed.services.cost.usage import component_of

if TYPE_CHECKING:
    from seedbed.services.cost.cluster import Cluster

log = logging.getLogger(__name__)

# A meter saves every 20 s: after these seconds without a save it is dead.
DEAD_AFTER_S = 300.0
# With a budget and a meter that has never saved anything, pods may run for so long.
UNMETERED_S = 3600.0
# The meter ends a run at 1.02 of its budget: this is for a meter that does not.
BUDGET_GRACE = 1.05


def hold_at_zero(
    cluster: "Cluster", budget: float, goal: str = "", now: Callable[[], float] = time.time
) -> None:
    """Take a release to zero that has spent more than its budget, or whose meter is dead.

    While its meter is dead, a release goes to zero if it has finished, is paused, or has spent its
    budget with what the present pods cost since the last save: the last rate, from their start at
    the earliest. A release with a budget whose meter has never saved anything is paused after an
    hour. The time of the work is written into the state, and the meter shows it.

    Args:
        cluster: The release's pods and state.
        budget: `stop.dollars`; 0 is none.
        goal: The stop conditions and the run, as the meter has them.
        now: Returns Unix time.
    """
    _hold_at_zero(cluster, budget, goal, now)
    cluster.save_state({"lastResort": f"{now():.0f}"})


def _hold_at_zero(cluster: "Cluster", budget: float, goal: str, now: Callable[[], float]) -> None:
    state, time_now = cluster.state(), now()
    if "unixTime" not in state:
        _pause_unmetered(cluster, budget, state, time_now, goal)
        return
    silent_s = time_now - float(state["unixTime"])
    dead = silent_s >= DEAD_AFTER_S
    spent = float(state.get("dollars", 0))
    if dead:
        spent += float(state.get("dollarsPerHour", 0)) / 3600 * _worked_s(cluster, state, time_now)
    over = bool(budget) and spent >= BUDGET_GRACE * budget
    ended = state.get("finished") or state.get("paused")
    if not over and not (dead and ended):
        log.info("nothing to do: %.4g dollars, last save %.0f s ago", spent, silent_s)
        return
    brake = Brake(cluster, state.get("goal", goal), state.get("paused") == BY_VALUE, {}, now=now)
    brake.follow(state)
    why = f"has saved nothing for {silent_s:.0f} s" if dead else "keeps running"
    reason = f"stop.dollars: {spent:.4g} of {budget:g}, ended by the last resort: the meter {why}"
    try:
        if not ended:
            brake.finish(reason)
    finally:
        brake.apply(None)


def _pause_unmetered(
    cluster: "Cluster", budget: float, state: Mapping[str, str], now: float, goal: str
) -> None:
    """Pause a release with a budget that has run for an hour without any price."""
    worked_s = _worked_s(cluster, {"unixTime": "0"}, now)
    brake = Brake(cluster, goal, False, {}, now=lambda: now)
    brake.follow(state)
    if not brake.paused and (not budget or worked_s < UNMETERED_S):
        log.info("nothing to do: the meter has saved nothing yet, for %.0f s of pods", worked_s)
        return
    brake.pause(
        f"last resort: in {worked_s:.0f} s the meter has saved nothing, so that nothing limits "
        f"stop.dollars {budget:g}: see why its pod does not run"
    )
    brake.apply(None)


def _worked_s(cluster: "Cluster", state: Mapping[str, str], now: float) -> float:
    """Return for how long since the last save the oldest of the present pods has run."""
    starts = [
        pod.status.start_time.timestamp()
        for pod in cluster.pods()
        if component_of(pod) != "cost" and pod.status.start_time
    ]
    return max(0.0, now - max(float(state["unixTime"]), min(starts))) if starts else 0.0
