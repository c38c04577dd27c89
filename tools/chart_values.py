"""The chart's values, typed: `values.schema.json` and the table of `README.md` come from here.

`python tools/chart_values.py` writes both, and `files/schema.json`; with `--check` it writes
nothing and fails where a file is not what this says. The tree `experiment:` is the schema of
experiments itself.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

from seedbed.config.schema import Experiment
from seedbed.services.cost.price_table import Prices
from tools.chart_schema import experiment_schema
from tools.chart_types import Cidr, Image, Images, Pod, Port, Resources, Section, Strings
from tools.chart_workloads import ActorValues, CostValues, LearnerValues, ReplayValues
from tools.generated import write_or_check

CHART = Path(__file__).resolve().parents[1] / "helm" / "seedbed"


class MetricsValues(Section):
    """How Prometheus finds the pods."""

    type: Literal["none", "annotations", "podMonitor", "podMonitoring"] = "annotations"
    """podMonitor: prometheus-operator; podMonitoring: Google Managed Prometheus."""
    interval: str = Field("15s", pattern=r"^(\d+(ms|[smh]))+$")
    """Between two scrapes."""
    labels: Strings = {}
    """On the monitor: kube-prometheus-stack ignores those without `release: STACK`."""


def monitoring() -> list[dict[str, Any]]:
    names = ["monitoring", "gmp-system", "gke-gmp-system"]
    where = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": names}
    return [{"namespaceSelector": {"matchExpressions": [where]}}]


class ApiServer(Section):
    """Where the API server is, for the cost meter."""

    cidr: Cidr | Literal[""] = ""
    """Its addresses; default: anywhere, of either family."""
    ports: list[Port] = Field(default_factory=lambda: [443, 6443])
    """Its ports."""


class NetworkPolicyValues(Section):
    """One policy a component, a rule an edge; everything else is closed."""

    enabled: bool = True
    """Whether there are policies."""
    scrapers: list[dict[str, Any]] = Field(default_factory=monitoring)
    """Who may scrape: NetworkPolicy peers. `[]` is nobody, `[{namespaceSelector: {}}]` every
    pod."""
    ipv6: bool = False
    """Addresses of IPv6 in the rules, too. Some network plugins take them on dual stack only."""
    dns: Literal["auto"] | list[dict[str, Any]] = "auto"
    """Resolvers, at port 53: NetworkPolicy peers. `auto`: pods of kube-system, NodeLocal DNSCache,
    Cloud DNS, private addresses and GKE's range of Services."""
    bucket: bool = True
    """Open the metadata server, and port 443 anywhere, for a learner with `gcsfuse` or with
    checkpoints at a URL."""
    apiServer: ApiServer = Field(default_factory=ApiServer, description="")


class Issuer(Section):
    """An issuer of cert-manager."""

    name: str = ""
    """Default: an authority of the release's own."""
    kind: str = "Issuer"
    """Its kind."""
    group: str = ""
    """Its API group; default: cert-manager.io. Google CAS: cas-issuer.jetstack.io."""


class AuthValues(Section):
    """Tokens for gRPC and /status."""

    enabled: bool = True
    """A token for each role; `docs/security.md`."""
    existingSecret: str = ""
    """Secret with the keys actor, learner, shard and observer, and learner-RANK of several,
    as `seedbed tokens` writes the files; default: the cost meter makes RELEASE-auth."""


class TlsValues(Section):
    """mTLS on gRPC."""

    enabled: bool = False
    """Without a certificate nobody gets an action."""
    issuer: Issuer = Field(default_factory=Issuer, description="")
    learnerSecret: str = ""
    """tls.crt, tls.key and ca.crt of yours; default: cert-manager makes them."""
    actorSecret: str = ""
    """Likewise."""
    replaySecret: str = ""
    """Likewise, with `replay.shards`."""


class RbacValues(Section):
    """The rights of the cost meter."""

    create: bool = True
    """Make its Role. false: its account is `seedbed-meter`, which the chart `seedbed-platform`
    makes with a role, for users who may make none."""


class Values(Section):
    """All values."""

    experimentFile: str = ""
    """Text of an experiment's file, by `--set-file experimentFile=FILE`; default: Pong."""
    experiment: dict[str, Any] = {}
    """Keys over those of the file, such as `experiment.stop.dollars`: docs/configuration.md."""
    image: Images = Field(default_factory=Images, description="")
    paused: bool = False
    """Take actors, learner and shards to zero; false brings back the numbers from before."""
    replicas: Literal["chart", "external"] = "chart"
    """`external` leaves `.spec.replicas` out of everything that is scaled, as GitOps needs."""
    fullnameOverride: str = ""
    """Objects are called NAME-learner and so on; it cannot change in a release."""
    set: str = Field("", pattern=r"^([a-z0-9]([-a-z0-9]{0,51}[a-z0-9])?)?$")
    """Set of runs that the release belongs to: a label on everything; its controller may read the
    learners."""
    extraLabels: Strings = {}
    """On everything, pods too."""
    extraObjects: list[dict[str, Any]] = []
    """More objects of the release, with templates in their text."""
    pod: Pod = Field(default_factory=Pod, description="")
    learner: LearnerValues = Field(default_factory=LearnerValues, description="")
    actor: ActorValues = Field(default_factory=ActorValues, description="")
    replay: ReplayValues = Field(default_factory=ReplayValues, description="")
    cost: CostValues = Field(default_factory=CostValues, description="")
    rbac: RbacValues = Field(default_factory=RbacValues, description="")
    metrics: MetricsValues = Field(default_factory=MetricsValues, description="")
    networkPolicy: NetworkPolicyValues = Field(default_factory=NetworkPolicyValues, description="")
    auth: AuthValues = Field(default_factory=AuthValues, description="")
    tls: TlsValues = Field(default_factory=TlsValues, description="")
    global_: dict[str, Any] = Field({}, alias="global")
    """Helm's own; not read."""


# Values that a template refuses with a sentence, of which Helm's schema names the type alone.
SAID = ("learner.replicas", "actor.replicas")


def schema() -> dict[str, Any]:
    """`values.schema.json`, in the draft that Helm 3 knows."""
    # A docstring of several lines is one line there.
    values = json.loads(json.dumps(Values.model_json_schema()).replace(r"\n", " "))
    experiment = Experiment.model_json_schema()
    definitions = values.pop("$defs") | experiment.pop("$defs")
    # Keys that the file has, and the name, which is the release's.
    del experiment["required"], definitions["Environment"]["required"]
    definitions["Experiment"] = experiment
    values["properties"]["experiment"] = {"$ref": "#/$defs/Experiment"}
    _leave_to_templates(values, definitions)
    whole = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **values,
        "$defs": definitions,
    }
    return plain(whole)  # type: ignore[no-any-return]


def _leave_to_templates(values: dict[str, Any], definitions: dict[str, Any]) -> None:
    """Let the values of `SAID` pass."""
    for path in SAID:
        *sections, key = path.split(".")
        node = values
        for section in sections:
            node = definitions[node["properties"][section]["$ref"].rpartition("/")[2]]
        node["properties"][key] = {}


def plain(node: Any, of_properties: bool = False) -> Any:
    """Without titles and defaults: the first are noise, the second are in values.yaml."""
    if isinstance(node, list):
        return [plain(item) for item in node]
    if not isinstance(node, dict):
        return node
    drop = set() if of_properties else {"title", "default"}
    return {
        key: plain(value, of_properties=key in ("properties", "$defs"))
        for key, value in node.items()
        if key not in drop
    }


def rows(model: type[BaseModel] = Values, prefix: str = "") -> list[tuple[str, str, str]]:
    """Path, default and meaning of each value, in the order of values.yaml's sections."""
    found = []
    default = model()
    for name, field in model.model_fields.items():
        path = f"{prefix}{field.alias or name}"
        value = getattr(default, name)
        # A role's own pod and image have no defaults but those of the sections that they lie over.
        own = isinstance(value, Image) or (isinstance(value, Pod) and bool(prefix))
        if isinstance(value, BaseModel) and not own and not isinstance(value, Resources | Prices):
            found += rows(type(value), f"{path}.")
            continue
        if isinstance(value, BaseModel):
            value = value.model_dump(exclude_none=True, exclude_defaults=own, by_alias=True)
        meaning = (field.description or "").replace("\n", " ")
        found.append((path, json.dumps(value), meaning))
    return found


HEAD = """\
# seedbed

One release is one experiment of Seedbed: a learner, or several (StatefulSet), actors (Deployment),
replay shards where they are asked for (StatefulSet), a cost meter, network policies. Helm 3 and
Helm 4, Kubernetes 1.33 and newer.

<!-- run by tests/docs/test_kubernetes_lines.py -->

    helm install pong helm/seedbed --set-file experimentFile=experiments/pong-vtrace.yaml
    kubectl scale deployment/pong-actor --replicas=50
    helm test pong

With kube-prometheus-stack installed as `monitoring`:

<!-- run by tests/docs/test_kubernetes_lines.py -->

    helm install pong helm/seedbed --set-file experimentFile=experiments/pong-vtrace.yaml \\
      --set metrics.type=podMonitor --set metrics.labels.release=monitoring

[docs/kubernetes.md](../../docs/kubernetes.md) says how an experiment lives, ends and resumes.

<!-- Generated by tools/chart_values.py. -->

"""
TABLE = """\
| value | default | meaning |
|---|---|---|
"""
# Most releases give no other values.
FIRST = (
    "experimentFile", "experiment", "image.registry", "image.tag", "actor.replicas", "actor.spot",
    "learner.accelerator.type", "learner.accelerator.name", "learner.persistence.checkpoints",
    "paused",
)  # fmt: skip


def readme() -> str:
    """`README.md` of the chart: ten values, then all others by role."""
    lines = {
        path: "| `{}` | `{}` | {} |".format(*(x.replace("|", r"\|") for x in (path, default, text)))
        for path, default, text in rows()
    }
    first = [lines.pop(path) for path in FIRST]
    tables = (("The ten values that matter", first), ("All others", lines.values()))
    return HEAD + "\n".join(
        "\n".join((f"## {title}\n\n{TABLE}" + "\n".join(found), "")) for title, found in tables
    )


def main() -> int:
    """Write, or check."""
    wanted = {
        CHART / "values.schema.json": json.dumps(schema(), indent=1) + "\n",
        CHART / "README.md": readme(),
        CHART / "files" / "schema.json": experiment_schema(),
    }
    return write_or_check(wanted, "tools/chart_values.py")


if __name__ == "__main__":
    sys.exit(main())
