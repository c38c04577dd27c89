"""Panels and queries of the dashboard."""

from __future__ import annotations

from typing import Any

WHICH = 'cluster=~"$cluster",namespace=~"$namespace",experiment=~"$experiment"'
# Two clusters or namespaces may have an experiment of one name. A Prometheus of one cluster as a
# rule has no label `cluster`: then it is empty, here and in the legends.
BY = "cluster, namespace, experiment"
NAME = "{{cluster}} {{namespace}}/{{experiment}}"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24


def metric(name: str, more: str = "") -> str:
    """A selector of the chosen experiments' series."""
    return f"{name}{{{WHICH}{',' + more if more else ''}}}"


def by_experiment(function: str, name: str, more: str = "", also: str = "") -> str:
    """Series of one experiment joined."""
    return f"{function} by ({BY}{', ' + also if also else ''}) ({metric(name, more)})"


def percentile(q: float, name: str) -> str:
    """Of a histogram, an experiment."""
    rate = f"rate({metric(name + '_bucket')}[$__rate_interval])"
    return f"histogram_quantile({q}, sum by ({BY}, le) ({rate}))"


def rate(name: str, also: str = "") -> str:
    """Growth a second of the counters of one experiment joined."""
    by = f"{BY}{', ' + also if also else ''}"
    return f"sum by ({by}) (rate({metric(name)}[$__rate_interval]))"


def mean(name: str) -> str:
    """Of a histogram, an experiment."""
    return f"{rate(name + '_sum')} / {rate(name + '_count')}"


def panel(
    kind: str,
    title: str,
    queries: dict[str, str],
    unit: str,
    width: int,
    height: int,
    description: str = "",
    **options: Any,
) -> dict[str, Any]:
    """A panel; `queries` are from legends to PromQL."""
    targets = [
        {
            "datasource": SOURCE, "refId": chr(ord("A") + i), "expr": expression,
            "legendFormat": legend.replace("{{experiment}}", NAME),
            **({"instant": True, "range": False} if kind in ("stat", "table") else {}),
        }
        for i, (legend, expression) in enumerate(queries.items())
    ]  # fmt: skip
    return {
        "type": kind, "title": title, "description": description, "datasource": SOURCE,
        "gridPos": {"w": width, "h": height}, "targets": targets,
        "fieldConfig": {
            "defaults": {"unit": unit, **options.pop("defaults", {})}, "overrides": [],
        },
        "options": options,
    }  # fmt: skip


def stat(title: str, query: str, unit: str, description: str = "", **more: Any) -> dict[str, Any]:
    """One number an experiment."""
    options = {"textMode": "value_and_name", "colorMode": "none", "graphMode": "none", **more}
    return panel("stat", title, {"{{experiment}}": query}, unit, 4, 4, description, **options)


def named(title: str, query: str, legend: str, description: str = "") -> dict[str, Any]:
    """The names of the series that are 1."""
    return panel(
        "stat", title, {legend: query}, "none", 8, 4, description,
        textMode="name", colorMode="none", graphMode="none",
    )  # fmt: skip


def graph(
    title: str, queries: dict[str, str], unit: str, description: str = "", stack: bool = False
) -> dict[str, Any]:
    """Lines over time."""
    custom: dict[str, Any] = {"fillOpacity": 30 if stack else 0, "lineWidth": 1}
    if stack:
        custom["stacking"] = {"mode": "normal"}
    return panel(
        "timeseries", title, queries, unit, 8, 8, description,
        defaults={"custom": custom}, legend={"displayMode": "list", "placement": "bottom"},
        tooltip={"mode": "multi"},
    )  # fmt: skip


def only_where(
    condition: str, otherwise: str, panels: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Leave out learners that say NaN or nothing. Shards say everything themselves.

    Args:
        condition: PromQL that has a value for the experiments that stay.
        otherwise: Text of a panel where none is left.
        panels: Changed in place.
    """
    for item in panels:
        item["fieldConfig"]["defaults"]["noValue"] = otherwise
        for target in item["targets"]:
            if "replay_shard_" not in target["expr"]:
                target["expr"] = f"({target['expr']}) and on ({BY}) {condition}"
    return panels
