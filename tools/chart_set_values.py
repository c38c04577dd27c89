"""The values of the chart `seedbed-set`, typed: its `values.schema.json` and `README.md`.

`python tools/chart_set_values.py` writes both; with `--check` it writes nothing and fails where a
file is not what this says.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from tools.chart_types import Count, Images, Quantity, Resources, Section, Strings, resources
from tools.chart_values import TABLE, ApiServer, MetricsValues, monitoring, plain, rows
from tools.generated import write_or_check

CHART = Path(__file__).resolve().parents[1] / "helm" / "seedbed-set"

_Name = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]


class Files(Section):
    """What the controller reads."""

    sweep: str = ""
    """`set/sweep.yaml` of the folder of a set."""
    experiment: str = ""
    """`set/experiment.yaml` of it."""
    templates: str = Field("", pattern=r"^[A-Za-z0-9+/=]*$")
    """Objects of each shape of runs: JSON, compressed with gzip, in base64."""
    confirm: str = ""
    """Settings that are confirmed, and the number of fresh seeds: JSON; empty confirms nothing."""


class Limits(Section):
    """Most at once, of all runs that are awake. 0 is no limit."""

    learners: Count = 1
    """Learners."""
    actors: Count = 0
    """Actors."""
    gpus: Count = 0
    """GPUs and TPU chips."""


class SetImage(Images):
    """Image of the controller."""

    repository: str = Field("seedbed-cost", pattern=r"^[^:@]*$")
    """Without a tag or a digest."""
    digest: str = Field("", pattern=r"^(sha256:[0-9a-f]{64})?$")
    """sha256:...; it wins over a tag."""


class SetPersistence(Section):
    """The folder of the set: settings, states and rows of all runs."""

    size: Quantity = "1Gi"
    """Size of the volume."""
    storageClass: str = ""
    """Default is the cluster's."""


class SetPod(Section):
    """The controller's pod."""

    nodeSelector: Strings = {}
    """As in a pod."""
    tolerations: list[dict[str, Any]] = []
    """As in a pod."""
    affinity: dict[str, Any] = {}
    """As in a pod."""
    priorityClassName: str = ""
    """As in a pod."""
    annotations: Strings = {}
    """On the pod."""
    labels: Strings = {}
    """On the pod."""
    env: list[dict[str, Any]] = []
    """As in a container, beside the chart's."""
    spec: dict[str, Any] = {}
    """Fields of the pod's spec, merged over the chart's at the end."""
    extraEgress: list[dict[str, Any]] = []
    """More egress: NetworkPolicy egress rules."""


class SetRbac(Section):
    """The rights of the controller and of the runs' cost meters."""

    create: bool = True
    """Make their accounts and Roles. false: the accounts are `seedbed-set` and those that the
    runs' values name, with rights that somebody else has given them."""


class SetAuth(Section):
    """Tokens of the controller and of the runs."""

    existingSecret: str = ""
    """Secret with the keys actor, learner, shard and observer, and learner-RANK of several,
    as `seedbed tokens` writes the files; default: the controller makes NAME-set-auth."""


class Objects(Section):
    """A kind of objects that runs have."""

    apiGroup: str
    """Such as apps."""
    resource: str = Field(pattern=r"^[a-z]+$")
    """Such as statefulsets."""
    names: list[_Name]
    """Names of these objects, with the placeholder of a run's name."""
    isClaim: bool = False
    """Whether others make them, and the controller may delete them alone."""


class Rule(Section):
    """A rule of the runs' cost meters."""

    apiGroups: list[str]
    """As in a Role."""
    resources: list[str]
    """As in a Role."""
    verbs: list[str]
    """As in a Role."""
    resourceNames: list[_Name] = []
    """With the placeholder of a run's name."""


class Accounts(Section):
    """Annotations of the runs' service accounts."""

    cost: Strings = {}
    """Of the cost meters."""
    learner: Strings = {}
    """Of the learners, such as those of a workload identity."""
    actor: Strings = {}
    """Of the actors."""


class SetNetworkPolicy(Section):
    """The controller's policy, a rule an edge; everything else is closed."""

    enabled: bool = True
    """Whether there is one."""
    scrapers: list[dict[str, Any]] = Field(default_factory=monitoring)
    """Who may scrape: NetworkPolicy peers. `[]` is nobody, `[{namespaceSelector: {}}]` every
    pod."""
    ipv6: bool = False
    """Addresses of IPv6 in the rules, too."""
    dns: Literal["auto"] | list[dict[str, Any]] = "auto"
    """Resolvers, at port 53: NetworkPolicy peers. `auto`: as in the chart seedbed."""
    apiServer: ApiServer = Field(default_factory=ApiServer, description="")


class SetValues(Section):
    """All values."""

    files: Files = Field(default_factory=Files, description="")
    names: list[_Name] = []
    """Names of all runs."""
    limits: Limits = Field(default_factory=Limits, description="")
    runs: Literal["keep", "delete"] = "keep"
    """What becomes of the runs when the release is removed. `keep`: each goes on to its own end.
    `delete`: they go with it. Volumes stay."""
    volumes: Literal["keep", "free"] = "keep"
    """Volumes of a run that is finished or pruned. `free`: the controller deletes them once the
    rows and the best checkpoint of the run are on its own volume, and the run goes on no more."""
    image: SetImage = Field(default_factory=SetImage, description="")
    persistence: SetPersistence = Field(default_factory=SetPersistence, description="")
    resources: Resources = Field(default_factory=lambda: resources("50m", "128Mi", "256Mi"))
    """Of the container."""
    pod: SetPod = Field(default_factory=SetPod, description="")
    extraLabels: Strings = {}
    """On everything, the pod too."""
    rbac: SetRbac = Field(default_factory=SetRbac, description="")
    auth: SetAuth = Field(default_factory=SetAuth, description="")
    objects: list[Objects] = []
    """Kinds of objects that runs have: what the controller may make and delete."""
    rules: list[Rule] = []
    """Rules of the runs' cost meters."""
    accounts: Accounts = Field(default_factory=Accounts, description="")
    metrics: MetricsValues = Field(default_factory=MetricsValues, description="")
    networkPolicy: SetNetworkPolicy = Field(default_factory=SetNetworkPolicy, description="")
    global_: dict[str, Any] = Field({}, alias="global")
    """Helm's own; not read."""


HEAD = """\
# seedbed-set

One release is one set of runs of Seedbed: a controller (Deployment) with a volume, the limits and
the accounts of its runs. It starts each run while the limits and the budget allow, with the objects
that the chart `seedbed` renders, and keeps what the runs measure.

`seedbed deploy SWEEP.yaml --max-learners N` installs it, and fills in `files`, `names`, `limits`,
`objects`, `rules` and `accounts`; `--render DIR` writes plain files.
[docs/kubernetes-sets.md](../../docs/kubernetes-sets.md) says how a set lives and ends.

<!-- Generated by tools/chart_set_values.py. -->

"""


def schema() -> str:
    """`values.schema.json`, in the draft that Helm 3 knows."""
    values = json.loads(json.dumps(SetValues.model_json_schema()).replace(r"\n", " "))
    whole = {"$schema": "http://json-schema.org/draft-07/schema#", **values}
    return json.dumps(plain(whole), indent=1) + "\n"


def readme() -> str:
    """`README.md` of the chart."""
    lines = [
        "| `{}` | `{}` | {} |".format(*(text.replace("|", r"\|") for text in row))
        for row in rows(SetValues)
    ]
    return HEAD + TABLE + "\n".join([*lines, ""])


def main() -> int:
    """Write, or check."""
    wanted = {CHART / "values.schema.json": schema(), CHART / "README.md": readme()}
    return write_or_check(wanted, "tools/chart_set_values.py")


if __name__ == "__main__":
    sys.exit(main())
