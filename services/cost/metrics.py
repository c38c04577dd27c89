"""Metrics of the cost meter.

Attributes:
    rates: US dollars an hour of the release's pods, and in the tiers `volume` and `traffic` of its
        volumes and of what its pods send from zone to zone.
    rate_bounds: Bounds of the US dollars an hour, where something has no certain price; the upper
        one is infinite where there is none.
    dollars_by: US dollars of the present run since its start.
    dollar_bounds: Bounds of the present run's US dollars.
    per_billion_frames: Dollars of a component so far by the learners' frames so far, for a billion
        of them. Absent before the first frame.
    ledger.frames: Emulator frames of the present run, as last known.
    goal.budget: Budget of the experiment, `stop.dollars`; 0 is none.
    pods: Pods that are priced, by component.
    restarts: Restarts of the containers of the present pods, by component.
    wanted: Replicas that the workloads of the release ask for, by component.
    exit_codes: Code of the newest end of the own container of each present pod; a pod appears with
        its first end.
    price_table: Price table in use, with its date: always 1.
    unknown: Machine families and accelerators without a price, each 1: the dearest price counts.
    cluster.nodes_readable: Access to nodes: 1 where prices follow the nodes.
    errors: Calls that failed, by part.
    end: State of the experiment: 1 once a stop condition, the label, is met and the pods are at
        zero.
    last_resort_s: Unix time at which the last resort has last done its work; before the first time,
        that at which the meter began.
    paused: Pause of the release: 1 while all pods but the meter are held at zero.
    brake.held: Times that a component of a finished or paused release was scaled up and taken to
        zero again.
"""

import re

from seedbed.runtime.metrics import counter, documented, gauge
from seedbed.services.cost.brake import ORDER

ERROR_PARTS = ("pods", "wanted", "autoscaler", "end", "state", "secrets")

# Read from a `CostMeter`.
METRICS = documented(
    __doc__,
    gauge("seedbed_cost_dollars_per_hour", "rates", ("component", "tier")),
    gauge("seedbed_cost_dollars_per_hour_bound", "rate_bounds", ("bound",)),
    counter("seedbed_cost_dollars_total", "dollars_by", ("component", "tier")),
    gauge("seedbed_cost_dollars_bound", "dollar_bounds", ("bound",)),
    gauge("seedbed_cost_dollars_per_billion_frames", "per_billion_frames", ("component",)),
    counter("seedbed_cost_frames_total", "ledger.frames"),
    gauge("seedbed_cost_budget_dollars", "goal.budget"),
    gauge("seedbed_cost_pods", "pods", ("component",)),
    gauge("seedbed_cost_pod_restarts", "restarts", ("component",)),
    gauge("seedbed_cost_wanted_replicas", "wanted", ("component",)),
    gauge("seedbed_exit_code", "exit_codes", ("component", "pod")),
    gauge("seedbed_cost_price_table", "price_table", ("table", "date")),
    gauge("seedbed_cost_unknown_prices", "unknown", ("what",)),
    gauge("seedbed_cost_nodes_readable", "cluster.nodes_readable"),
    counter("seedbed_cost_errors_total", "errors", ("part",), ERROR_PARTS),
    gauge("seedbed_experiment_finished", "end", ("reason",)),
    gauge("seedbed_cost_last_resort_timestamp_seconds", "last_resort_s"),
    gauge("seedbed_cost_paused", "paused"),
    counter("seedbed_cost_held_at_zero_total", "brake.held", ("component",), ORDER),
)


def stop_condition(reason: str) -> str:
    """Return the condition of a text such as `learner 2: stop.dollars: 2.01 of 2`."""
    found = re.search(r"stop\.\w+", reason)
    return found[0] if found else reason
