"""Metrics of the cost meter; read from a `CostMeter`."""

from __future__ import annotations

import math
import re

from seedbed.runtime.metrics import Metric, counter, gauge

ERROR_PARTS = ("pods", "end", "state")

METRICS: tuple[Metric, ...] = (
    gauge(
        "seedbed_cost_dollars_per_hour",
        "US dollars an hour of what the release's pods request now.",
        lambda m: dict(m.rates),
        "component",
        "tier",
    ),
    counter(
        "seedbed_cost_dollars_total",
        "US dollars of the release since its start.",
        lambda m: m.status()["dollars"],
    ),
    gauge(
        "seedbed_cost_dollars_per_billion_frames",
        "Dollars so far by the learners' frames so far. NaN before the first frame.",
        lambda m: math.nan if m.ledger.frames == 0 else m.status()["dollars_per_billion_frames"],
    ),
    counter(
        "seedbed_cost_frames_total",
        "Emulator frames of the learners, as last known.",
        "ledger.frames",
    ),
    gauge(
        "seedbed_cost_budget_dollars",
        "Budget of the experiment, `stop.dollars`; 0 is none.",
        "budget_dollars",
    ),
    gauge(
        "seedbed_cost_pods",
        "Pods that are priced, by component.",
        lambda m: dict(m.pods),
        "component",
    ),
    gauge(
        "seedbed_cost_pod_restarts",
        "Restarts of the containers of the present pods, by component.",
        lambda m: dict(m.restarts),
        "component",
    ),
    gauge(
        "seedbed_cost_price_table",
        "Price table in use, with its date: always 1.",
        lambda m: {(m.prices.name, m.prices.date): 1.0},
        "table",
        "date",
    ),
    gauge(
        "seedbed_cost_unknown_prices",
        "Machine families and accelerators without a price, each 1: the dearest price counts.",
        lambda m: dict.fromkeys(m.unknown, 1.0),
        "what",
    ),
    gauge(
        "seedbed_cost_nodes_readable",
        "Access to nodes: 1 where prices follow the nodes.",
        lambda m: float(m.cluster.nodes_readable),
    ),
    counter(
        "seedbed_cost_errors_total",
        "Calls that failed, by part.",
        lambda m: {**dict.fromkeys(ERROR_PARTS, 0), **m.errors},
        "part",
    ),
    gauge(
        "seedbed_experiment_finished",
        "State of the experiment: 1 once a stop condition, the label, is met and the pods are at "
        "zero.",
        lambda m: {stop_condition(m.finished): float(bool(m.finished))},
        "reason",
    ),
)


def stop_condition(reason: str) -> str:
    """Return the condition of a text such as `learner 2: stop.dollars: 2.01 of 2`."""
    found = re.search(r"stop\.\w+", reason)
    return found[0] if found else reason
