"""Panels and queries of the dashboards."""

from __future__ import annotations

from typing import Any

WHICH = 'cluster=~"$cluster",namespace=~"$namespace",experiment=~"$experiment"'
# Two clusters or namespaces may have an experiment of one name. A Prometheus of one cluster as a
# rule has no label `cluster`: then it is empty, here and in the legends.
BY = "cluster, namespace, experiment"
NAME = "{{cluster}} {{namespace}}/{{experiment}}"
SET = "{{cluster}} {{namespace}}/{{set}}"
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
            "legendFormat": legend.replace("{{experiment}}", NAME).replace("{{set}}", SET),
            **({"instant": True, "range": False} if kind in ("stat", "table") else {}),
            **({"format": "table"} if kind == "table" else {}),
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


def stat(
    title: str,
    query: str,
    unit: str,
    description: str = "",
    legend: str = "{{experiment}}",
    **more: Any,
) -> dict[str, Any]:
    """One number for each legend."""
    options = {"textMode": "value_and_name", "colorMode": "none", "graphMode": "none", **more}
    return panel("stat", title, {legend: query}, unit, 4, 4, description, **options)


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


def table(
    title: str,
    queries: dict[str, str],
    units: dict[str, str],
    description: str = "",
    best_first: str = "",
    links: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Rows of the labels that series have in common, with a column for each query.

    Args:
        title: Title of the panel.
        queries: From columns to PromQL; a column with the name of a label shows that label alone.
        units: Units of columns.
        description: What the panel shows.
        best_first: Column by which the rows are sorted, the largest first.
        links: Addresses of cells by column.
    """
    made = panel("table", title, queries, "none", 12, 9, description)
    only = len(queries) == 1
    values = {
        column: "Value" if only else f"Value #{target['refId']}"
        for column, target in zip(queries, made["targets"], strict=True)
    }
    hidden = [field for column, field in values.items() if column not in units]
    names = {field: column for column, field in values.items() if column in units}
    transformations: list[dict[str, Any]] = [] if only else [{"id": "merge", "options": {}}]
    transformations.append({
        "id": "organize",
        "options": {
            "excludeByName": dict.fromkeys(["Time", *hidden], True), "renameByName": names,
        },
    })  # fmt: skip
    if best_first:
        sort = [{"field": best_first, "desc": True}]
        transformations.append({"id": "sortBy", "options": {"sort": sort}})
    made["transformations"] = transformations
    properties: list[tuple[str, dict[str, Any]]] = [
        (column, {"id": "unit", "value": unit}) for column, unit in units.items()
    ]
    properties += [
        (column, {"id": "links", "value": [{"title": "Its curves", "url": url}]})
        for column, url in (links or {}).items()
    ]
    made["fieldConfig"]["overrides"] = [
        {"matcher": {"id": "byName", "options": column}, "properties": [value]}
        for column, value in properties
    ]
    return made


def labels_variable(name: str, query: str, everything: str = ".+") -> dict[str, Any]:
    """A variable of a dashboard whose values are those of a label."""
    return {
        "name": name, "type": "query", "datasource": SOURCE, "query": query, "refresh": 2,
        "includeAll": True, "multi": True, "allValue": everything, "sort": 1,
        "current": {"text": "All", "value": "$__all"},
    }  # fmt: skip


def laid_out(rows: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The panels of rows from left to right, with numbers."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, items in rows.items():
        panels.append({"type": "row", "title": title, "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}})
        x, y, height = 0, y + 1, 0
        for item in items:
            place = item["gridPos"]
            if x + place["w"] > WIDTH:
                x, y, height = 0, y + height, 0
            place["x"], place["y"] = x, y
            x, height = x + place["w"], max(height, place["h"])
            panels.append(item)
        y += height
    for number, item in enumerate(panels, 1):
        item["id"] = number
    return panels


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
