"""What requirements/*.lock hold: hashes, one version of each package, what the images need."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.support.locks import lock
from tests.support.source_imports import ROOT, imports

LOCKS = (
    "dev",
    "run",
    "build",
    "actor",
    "vizdoom",
    "cost",
    "learner-tensorflow",
    "learner-jax",
)
RUN = ("actor", "tensorflow", "plots", "compare", "video", "build")
EXTRAS = {
    "run": RUN,
    "cost": ("kubernetes",),
    "learner-tensorflow": ("tensorflow", "gcs"),
    "learner-jax": ("jax", "gcs"),
    "dev": (*RUN, "vizdoom", "jax", "kubernetes", "gcs", "dev"),
    "jax-newest": ("jax", "plots", "compare", "video", "test"),
}

# What each image runs. The rooms of the learner are all but what other images are for.
LIGHT = ("seedbed/cli", "seedbed/config", "seedbed/rpc", "seedbed/runtime")
LEARNER = ("services/learner", "services/replay", "services/actor", "seedbed")


@pytest.mark.parametrize("name", [*LOCKS, "installer"])
def test_lock_is_a_part_of_dev(name: str) -> None:
    assert lock(name)
    assert lock(name).items() <= lock("dev").items()


def wanted(extras: tuple[str, ...]) -> Iterator[Requirement]:
    """What pyproject.toml asks for, its extras of extras too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = list(project["dependencies"])
    for extra in extras:
        lines += project["optional-dependencies"][extra]
    for requirement in map(Requirement, lines):
        if requirement.name == "seedbed":
            yield from wanted(tuple(requirement.extras))
        else:
            yield requirement


def test_the_devices_libraries_come_on_top() -> None:
    """The images for GPUs and TPUs hold what the CPU's does, in the same versions."""
    for name, device in (
        ("tensorflow-gpu", "nvidia-"),
        ("jax-gpu", "jax-cuda13-plugin"),
        ("jax-tpu", "libtpu"),
    ):
        base = lock(f"learner-{name.partition('-')[0]}")
        assert base.items() <= lock(f"learner-{name}").items()
        assert any(package.startswith(device) for package in lock(f"learner-{name}"))


def test_families_of_environments_come_on_top_of_the_actor() -> None:
    for name, package in (("vizdoom", "vizdoom"), ("lab", "dm-env")):
        assert lock("actor").items() <= lock(name).items()
        assert package in lock(name)
    # Football's packages are installed over the actor's: what both have is the same.
    football = lock("football")
    assert football.items() & lock("actor").items()
    assert all(lock("actor").get(name, version) == version for name, version in football.items())
    assert {"gfootball", "gym"} <= football.keys()
    # Lab's wheel imports pkg_resources.
    assert int(lock("lab")["setuptools"].partition(".")[0]) < 82
    # Both lie in the folder pygame.
    assert not any("pygame" in lock(name) for name in LOCKS)


def test_make_run_has_a_lock_for_each_device() -> None:
    gpu, tpu = lock("run-gpu"), lock("run-tpu")
    assert lock("run").items() <= gpu.items()
    assert any(package.startswith("nvidia-cudnn") for package in gpu)
    assert {"libtpu", "jax"} <= tpu.keys()
    assert "tensorflow" not in tpu
    assert set(tpu.items()) - set(lock("learner-jax-tpu").items()) <= set(lock("dev").items())


@pytest.mark.parametrize("name", [*LOCKS, "jax-newest"])
def test_lock_holds_what_pyproject_asks_for(name: str) -> None:
    versions = lock(name)
    wrong = []
    for requirement in wanted(EXTRAS.get(name, (name,))):
        version = versions.get(canonicalize_name(requirement.name))
        if version is None or not requirement.specifier.contains(version):
            wrong.append(f"{requirement}: {version}")
    assert not wrong, f"run `make lock`: {wrong}"


def test_the_newest_jax_is_there_without_tensorflow() -> None:
    newest, locked = lock("jax-newest"), lock("dev")
    assert "tensorflow" not in newest
    assert Version(newest["jax"]) >= Version(locked["jax"])


def test_images_hold_no_other_backend() -> None:
    assert not {"keras", "tensorflow", "jax", "jaxlib"} & lock("actor").keys()
    assert not {"vizdoom", "dm-env", "gfootball"} & lock("actor").keys(), "pulled to every node"
    assert not {"tensorflow"} & lock("learner-jax").keys()
    assert not {"jax", "jaxlib"} & lock("learner-tensorflow").keys()


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("name", "rooms", "other_backend"),
    [
        ("actor", ("services/actor", *LIGHT, "seedbed/envs"), None),
        ("cost", ("services/cost", *LIGHT), None),
        ("learner-tensorflow", LEARNER, "backends/jax"),
        ("learner-jax", LEARNER, "backends/tensorflow"),
    ],
)
def test_image_holds_what_its_rooms_import(
    name: str, rooms: tuple[str, ...], other_backend: str | None
) -> None:
    """Imports inside functions are of optional extras, and may be missing."""
    distributions = packages_distributions()
    wrong = []
    for room in rooms:
        for item in imports(room):
            top = item.module.partition(".")[0]
            if item.lazy or top in {"seedbed", *sys.stdlib_module_names}:
                continue
            if other_backend and other_backend in item.path:
                continue
            names = {canonicalize_name(found) for found in distributions.get(top, [top])}
            if not names & lock(name).keys():
                wrong.append(str(item))
    assert not wrong, f"requirements/{name}.lock has no such package"
