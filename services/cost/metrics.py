"""What the cost meter exports."""

from __future__ import annotations

from seedbed.runtime.metrics import Metric

METRICS = (
    Metric(
        "seedbed_cost_dollars_per_hour",
        "gauge",
        "US dollars an hour of what the release's pods ask for now.",
        ("component", "tier"),
    ),
    Metric("seedbed_cost_dollars_total", "counter", "US dollars of the release since it began."),
    Metric(
        "seedbed_cost_dollars_per_billion_frames",
        "gauge",
        "Dollars so far by the learner's frames so far. NaN until there is one.",
    ),
    Metric("seedbed_cost_frames_total", "counter", "The learner's frames, as last known."),
    Metric("seedbed_cost_budget_dollars", "gauge", "`stop.dollars` of the experiment; 0 is none."),
    Metric("seedbed_cost_pods", "gauge", "Pods that are priced, by component.", "component"),
    Metric(
        "seedbed_cost_pod_restarts",
        "gauge",
        "Times that containers of the pods that are there were started again, by component.",
        "component",
    ),
    Metric(
        "seedbed_cost_price_table",
        "gauge",
        "1 for the price table in use, with its date.",
        ("table", "date"),
    ),
    Metric(
        "seedbed_cost_unknown_prices",
        "gauge",
        "1 for each machine family or accelerator without a price: the dearest one counts.",
        "what",
    ),
    Metric("seedbed_cost_nodes_readable", "gauge", "1 where prices follow the nodes."),
    Metric("seedbed_cost_errors_total", "counter", "Looks that failed, by what did.", "part"),
    Metric(
        "seedbed_experiment_finished",
        "gauge",
        "1 once the experiment is over and its pods are at zero, with the condition.",
        "reason",
    ),
)
