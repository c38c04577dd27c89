"""The bill of a pod, from its Kubernetes objects, against published prices of us-central1."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from seedbed.services.cost.prices import PriceList, Settings
from seedbed.services.cost.usage import usage_of
from tests.services.cost.test_usage import container, pod, thing

GKE = "cloud.google.com/"


class Published(NamedTuple):
    """A pod that fills a machine, or what Autopilot bills, and its published price."""

    machine: str
    cpus: float
    memory_gib: float
    dollars: float
    spot: bool = False
    accelerator: str = ""
    count: int = 0
    # What the pod asks for, where that is not the machine.
    asks: tuple[float, float] | None = None


# Machines that the units were not solved from: karpenter-provider-gcp, 2026-08-03.
KARPENTER = [
    Published("e2-standard-16", 16, 64, 0.53609),
    Published("e2-highcpu-8", 8, 8, 0.19788),
    Published("e2-highmem-16", 16, 128, 0.43395, spot=True),
    Published("n1-standard-1", 1, 3.75, 0.0475),
    Published("n1-highmem-8", 8, 52, 0.16689, spot=True),
    Published("n2-standard-16", 16, 64, 0.77694),
    Published("n2-highcpu-16", 16, 16, 0.272, spot=True),
    Published("n2-highmem-8", 8, 64, 0.52406),
    Published("n2d-standard-8", 8, 32, 0.09782, spot=True),
    Published("n2d-highmem-16", 16, 128, 0.91184),
    Published("t2d-standard-16", 16, 64, 0.25216, spot=True),
    Published("t2a-standard-8", 8, 32, 0.308),
    Published("t2a-standard-16", 16, 64, 0.262272, spot=True),
    Published("c2d-standard-16", 16, 64, 0.72638),
    Published("c3-highcpu-8", 8, 16, 0.34021),
    Published("c3-highmem-8", 8, 64, 0.12968, spot=True),
    Published("c3d-highcpu-16", 16, 32, 0.5997),
    Published("c4-standard-16", 16, 60, 0.79068),
    Published("c4a-standard-16", 16, 64, 0.7184),
    Published("c4d-standard-8", 8, 31, 0.37798),
    Published("n4-highcpu-16", 16, 32, 0.61232),
    Published("n4a-highmem-8", 8, 64, 0.16978, spot=True),
    Published("n4d-standard-16", 16, 64, 0.3287, spot=True),
]
# A learner with the chart's requests, alone on its machine: the whole machine is paid.
LEARNER = (2, 4)
MACHINES = [
    Published("g2-standard-4", 4, 16, 0.70683, accelerator="nvidia-l4", count=1, asks=LEARNER),
    Published("g2-standard-12", 12, 48, 0.56241, True, "nvidia-l4", 1, LEARNER),
    Published("a2-highgpu-1g", 12, 85, 3.673385, False, "nvidia-tesla-a100", 1, LEARNER),
    Published("a2-ultragpu-1g", 12, 170, 5.0688, False, "nvidia-a100-80gb", 1, LEARNER),
    Published("a2-ultragpu-1g", 12, 170, 2.7595, True, "nvidia-a100-80gb", 1, LEARNER),
    # One of eight GPUs: the other seven idle, and are paid.
    Published("a3-highgpu-8g", 208, 1872, 88.49, False, "nvidia-h100-80gb", 8, LEARNER),
    # Cloud Billing Catalog, 2026-10-13: 10.4365 and 6.2607 a GPU.
    Published("a3-ultragpu-8g", 224, 2952, 83.492, False, "nvidia-h200-141gb", 8, LEARNER),
    Published("a3-ultragpu-8g", 224, 2952, 50.0856, True, "nvidia-h200-141gb", 8, LEARNER),
    # A machine and GPUs beside it: 0.19000 and 0.35, 0.38000 and 2.48, 0.19000 and 1.46.
    Published("n1-standard-4", 4, 15, 0.54, False, "nvidia-tesla-t4", 1, LEARNER),
    Published("n1-standard-8", 8, 30, 2.86, False, "nvidia-tesla-v100", 1, LEARNER),
    Published("n1-standard-4", 4, 15, 1.65, False, "nvidia-tesla-p100", 1, LEARNER),
]
# skypilot-catalog: slices of one host.
SLICES = [
    Published("ct5lp-hightpu-1t", 24, 48, 1.20, False, "tpu-v5-lite-podslice", 1, LEARNER),
    Published("ct5lp-hightpu-8t", 224, 384, 9.60, False, "tpu-v5-lite-podslice", 8, LEARNER),
    Published("ct5lp-hightpu-4t", 112, 192, 0.9797, True, "tpu-v5-lite-podslice", 4, LEARNER),
    Published("ct6e-standard-1t", 44, 176, 2.70, False, "tpu-v6e-slice", 1, LEARNER),
    Published("ct6e-standard-4t", 180, 720, 10.80, False, "tpu-v6e-slice", 4, LEARNER),
    Published("ct4p-hightpu-4t", 240, 407, 12.88, False, "tpu-v4-podslice", 4, LEARNER),
    Published("ct4p-hightpu-4t", 240, 407, 3.686, True, "tpu-v4-podslice", 4, LEARNER),
]
# Autopilot's general-purpose pods: 0.0445 a vCPU and 0.0049225 a GiB, on Spot 0.0133 and 0.0014767.
AUTOPILOT = [
    Published("ek-standard-32", 32, 128, 0.12838, asks=(2, 8)),
    Published("ek-standard-32", 32, 128, 0.0494225, asks=(1, 1)),
    Published("ek-standard-32", 32, 128, 0.0147767, spot=True, asks=(1, 1)),
    Published("e2-standard-8", 8, 32, 0.0384135, spot=True, asks=(2, 8)),
]
EVERY = [*KARPENTER, *MACHINES, *SLICES, *AUTOPILOT]


def node(of: Published, name: str) -> Any:
    labels = {"node.kubernetes.io/instance-type": of.machine}
    if of.spot:
        labels[f"{GKE}gke-provisioning"] = "spot"
    # A node has a little less memory than its machine.
    capacity = {"cpu": str(of.cpus), "memory": f"{round(of.memory_gib * 0.98 * 2**20)}Ki"}
    if of.accelerator:
        kind = "tpu-accelerator" if of.accelerator.startswith("tpu") else "accelerator"
        labels[f"{GKE}gke-{kind}"] = of.accelerator
        capacity[resource(of)] = str(of.count)
    metadata = {"name": name, "labels": labels}
    return thing("V1Node", {"metadata": metadata, "status": {"capacity": capacity}})


def resource(of: Published) -> str:
    return "google.com/tpu" if of.accelerator.startswith("tpu") else "nvidia.com/gpu"


def running(of: Published, name: str) -> Any:
    cpus, memory_gib = of.asks or (of.cpus, of.memory_gib)
    asks = {"cpu": str(cpus), "memory": f"{round(memory_gib * 1024)}Mi"}
    if of.accelerator:
        asks[resource(of)] = str(of.count if of.accelerator.startswith("tpu") else 1)
    return pod([container(asks)], nodeName=name)


def name_of(of: Published) -> str:
    return f"{of.machine}-{'spot' if of.spot else 'list'}-{of.accelerator or of.asks}"


@pytest.mark.parametrize("of", EVERY, ids=name_of)
def test_a_pod_costs_what_is_published(of: Published) -> None:
    name = f"{'gk3' if of in AUTOPILOT else 'gke'}-pool-1"
    prices = PriceList(Settings())
    cost = prices.costs([usage_of(running(of, name), node(of, name))])[0]
    assert cost.charged == pytest.approx(of.dollars, rel=0.02)
    assert cost.lower <= cost.charged <= cost.upper
    assert not prices.unknown


def test_the_table_has_at_least_30_pods() -> None:
    assert len(EVERY) >= 30
    assert len({of.machine.partition("-")[0] for of in EVERY}) >= 20
