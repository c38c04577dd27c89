"""The dashboard of sets of runs on a cluster.

Its series are those of the sets' controllers. The curves of each run are on the dashboard of the
experiments.
"""

from __future__ import annotations

from typing import Any

from tools import dashboard_panels
from tools.dashboard_panels import (
    graph,
    labels_variable,
    laid_out,
    named,
    table,
)

WHICH = 'cluster=~"$cluster",namespace=~"$namespace",set=~"$set"'
BY = "cluster, namespace, set"
CURVES = "/d/seedbed?var-namespace=${__data.fields.namespace}&var-experiment=${__value.raw}"


def metric(name: str, more: str = "") -> str:
    """A selector of the chosen sets' series."""
    return f"seedbed_set_{name}{{{WHICH}{',' + more if more else ''}}}"


def by_set(name: str, more: str = "", also: str = "") -> str:
    """Series by set: the newer one, where a controller takes another's place."""
    return f"max by ({BY}{', ' + also if also else ''}) ({metric(name, more)})"


def grown(name: str, also: str = "") -> str:
    """Growth a second of a counter, by set."""
    by = f"{BY}{', ' + also if also else ''}"
    return f"sum by ({by}) (rate({metric(name)}[$__rate_interval]))"


def stat(title: str, query: str, unit: str, description: str = "") -> dict[str, Any]:
    """One number a set."""
    return dashboard_panels.stat(title, query, unit, description, "{{set}}")


def rows() -> dict[str, list[dict[str, Any]]]:
    """Titles of rows, and their panels."""
    dollars = by_set("bound", 'resource="dollars"')
    runs = f"sum by ({BY}) ({by_set('runs', '', 'state')})"
    over = by_set("runs", 'state=~"finished|pruned|failed|diverged"', "state")
    since = f"time() - {by_set('last_reconcile_timestamp_seconds')}"
    return {
        "Now": [
            stat("Runs", runs, "short"),
            stat("Runs that are over", f"sum by ({BY}) ({over}) / {runs}", "percentunit",
                 "Finished, pruned, failed or diverged."),
            stat("Dollars", by_set("dollars"), "currencyUSD"),
            stat("Forecast", by_set("forecast_dollars"), "currencyUSD",
                 "When all runs have their frames, with halving those of their next rungs, at the "
                 "price of a frame so far."),
            stat("Budget", dollars, "currencyUSD", "Empty where budget.dollars is not set."),
            stat("Since the last round", since, "s",
                 "A controller makes one each five seconds."),
            named("Held by", f"{by_set('held', '', 'by')} == 1", "{{set}}: {{by}}",
                  "What keeps the runs that wait from starting, beside the limits; empty where "
                  "nothing does."),
            stat("Refused", by_set("refused"), "short",
                 "Runs that wait because the API server has refused their objects or pods."),
            stat("Frames", by_set("frames"), "short", "Emulator frames of all runs."),
            stat("Dollars an hour", by_set("dollars_per_hour"), "currencyUSD"),
        ],
        "Runs": [
            table("Finals", {
                "score": by_set("run_score", "", "run"),
                "state": by_set("run_state", "", "run, state"),
                "failures": by_set("run_failures_total", "", "run"),
                "preemptions": by_set("run_preemptions_total", "", "run"),
            }, dict.fromkeys(("score", "failures", "preemptions"), "short"),
                "Mean return of the newest evaluation of each run, the best first. Failures are "
                "its own; preemptions took pods of its learner, which resumed.",
                best_first="score", links={"run": CURVES}),
            table("Not training", {
                "state": by_set(
                    "run_state", 'state!~"training|ending|finished|pruned"', "run, state"),
            }, {}, "Runs that wait, start, are paused, or have failed. `seedbed status SET` has "
                "the reason of each."),
            graph("Runs by state", {"{{set}} {{state}}": by_set("runs", "", "state")}, "short",
                  stack=True),
            graph("Without a new frame", {
                "{{set}} {{run}}": by_set("run_idle_seconds", "", "run"),
            }, "s", "Of each run that is awake. Half an hour is an alert, a run's last evaluation "
               "apart."),
            graph("Scores", {"{{set}} {{run}}": by_set("run_score", "", "run")}, "short",
                  "Mean return of the newest evaluation."),
        ],
        "Money and places": [
            graph("Dollars and budget", {
                "{{set}}": by_set("dollars"),
                "{{set}} forecast": by_set("forecast_dollars"),
                "{{set}} budget": dollars,
            }, "currencyUSD", "The budget ends all runs with checkpoints."),
            graph("Dollars an hour", {"{{set}}": by_set("dollars_per_hour")}, "currencyUSD",
                  "Of the awake runs, by their meters."),
            graph("Frames and bound", {
                "{{set}}": by_set("frames"),
                "{{set}} bound": by_set("bound", 'resource="frames"'),
            }, "short", "A bound is drawn where budget.frames is set."),
            *(
                graph(f"{title} awake", {
                    "{{set}}": by_set("awake", f'resource="{resource}"'),
                    "{{set}} limit": by_set("limit", f'resource="{resource}"'),
                }, "short", f"A limit is drawn where --max-{resource} is set.")
                for resource, title in (
                    ("learners", "Learners"), ("actors", "Actors"), ("gpus", "GPUs and TPU chips")
                )
            ),
        ],
        "Controller": [
            graph("Errors a second", {"{{set}} {{part}}": grown("errors_total", "part")}, "short",
                  "Calls and files that failed; each is tried again in the next round."),
            graph("Since the last round", {"{{set}}": since}, "s",
                  "Five minutes are an alert."),
            graph("Calls a second", {"{{set}}": grown("calls_total")}, "short",
                  "Of the controller to the API server."),
        ],
    }  # fmt: skip


def sets_dashboard() -> dict[str, Any]:
    """The whole."""
    runs, within = "seedbed_set_runs", 'cluster=~"$cluster",namespace=~"$namespace"'
    variables = [
        {"name": "datasource", "type": "datasource", "query": "prometheus"},
        labels_variable("cluster", f"label_values({runs}, cluster)", ".*"),
        labels_variable("namespace", f'label_values({runs}{{cluster=~"$cluster"}}, namespace)'),
        labels_variable("set", f"label_values({runs}{{{within}}}, set)"),
    ]
    return {
        "uid": "seedbed-sets", "title": "Seedbed sets", "tags": ["seedbed"], "schemaVersion": 41,
        "editable": False, "refresh": "10s", "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": variables}, "panels": laid_out(rows()),
    }  # fmt: skip
