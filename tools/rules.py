"""Wrap `seedbed.yaml` for prometheus-operator and Google Managed Prometheus.

`python tools/rules.py` writes both files, and the copy in the chart `seedbed-platform`; with
`--check` it fails where one is not what `seedbed.yaml` says.
"""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

from tools.generated import write_or_check

ROOT = Path(__file__).resolve().parents[1]
HERE = ROOT / "k8s" / "rules"
CHART = ROOT / "helm" / "seedbed-platform" / "files" / "rules.yaml"
KINDS = {
    "prometheus-rule.yaml": ("monitoring.coreos.com/v1", "PrometheusRule"),
    "gmp-rules.yaml": ("monitoring.googleapis.com/v1", "ClusterRules"),
}
HEAD = (
    "# Generated from seedbed.yaml by tools/rules.py. kube-prometheus-stack wants its release's "
    "label.\n"
)


def wrapped(api_version: str, kind: str) -> str:
    """The rules as an object of Kubernetes."""
    rules = yaml.safe_load((HERE / "seedbed.yaml").read_text())
    labels = {"app.kubernetes.io/name": "seedbed", "app.kubernetes.io/part-of": "seedbed"}
    thing = {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "seedbed", "labels": labels},
        "spec": rules,
    }
    return HEAD + yaml.safe_dump(thing, sort_keys=False, width=200)


def main() -> int:
    """Write, or check."""
    files = {HERE / name: wrapped(*of) for name, of in KINDS.items()}
    return write_or_check(
        {**files, CHART: (HERE / "seedbed.yaml").read_text()}, "k8s/rules/seedbed.yaml"
    )


if __name__ == "__main__":
    sys.exit(main())
