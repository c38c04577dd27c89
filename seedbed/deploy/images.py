"""Images of a release, built from this checkout and pushed to a registry."""

import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from seedbed.config import Experiment
from seedbed.deploy.plan import ApiObject, only, template_of, workload_of, workloads
from seedbed.deploy.programs import run
from seedbed.runtime.exit_codes import ConfigError, SeedbedError

# What the resources of the learner's container say of its image.
_ACCELERATORS = {"nvidia.com/gpu": "gpu", "google.com/tpu": "tpu"}
_COST = ("--file=Dockerfile.actor", "--target=cost")


def build_and_push(
    source: Path, registry: str, experiment: Experiment, objects: list[ApiObject]
) -> dict[str, Any]:
    """Build the images that the chart names, push them, and return the values that name them.

    A tag is the beginning of the image's own digest, so that an image without a change restarts
    nothing.

    Args:
        source: A checkout of Seedbed.
        registry: Where the images go.
        experiment: Its backend chooses the learner's libraries.
        objects: The rendered chart.

    Raises:
        SeedbedError: CONFIG, there is no checkout; DEPLOY, a build or a push failed.
    """
    if not (source / "Dockerfile.learner").is_file():
        raise ConfigError(
            f"--registry builds from a checkout, and {source} has no Dockerfile.learner: run "
            "`python -m seedbed.cli.main deploy` in one, or leave --registry out"
        )
    program = "docker" if shutil.which("docker") or not shutil.which("podman") else "podman"
    values: dict[str, Any] = {"image": {"registry": registry}}
    for component, repository, options in _images(experiment, objects):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "id"
            build = ("build", f"--iidfile={file}", *options, str(source))
            run(program, *build, shown=True)
            digest = file.read_text().strip()
        tag = digest.removeprefix("sha256:")[:12]
        run(program, "tag", digest, f"{registry}/{repository}:{tag}")
        run(program, "push", f"{registry}/{repository}:{tag}")
        values[component] = {"image": {"tag": tag}}
    return values


def _images(
    experiment: Experiment, objects: list[ApiObject]
) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield component, repository and options of `build` of each image."""
    learner = template_of(only(objects, "learner")).spec.containers[0]
    asked = (learner.resources.get("requests") or {}).keys()
    accelerator = next((_ACCELERATORS[name] for name in asked if name in _ACCELERATORS), "cpu")
    # As in the chart: the default of this machine is of what is installed here.
    named = "backend" in experiment.learner.model_fields_set
    options = (
        "--file=Dockerfile.learner",
        f"--build-arg=BACKEND={experiment.learner.backend if named else 'tensorflow'}",
        f"--build-arg=ACCELERATOR={accelerator}",
    )
    yield "learner", _repository(learner.image), options
    actor = only(objects, "actor").spec.template.spec.containers[0]
    yield "actor", _repository(actor.image), ("--file=Dockerfile.actor", "--target=actor")
    if (cost := workload_of(objects, "cost")) is not None:
        yield "cost", _repository(cost.spec.template.spec.containers[0].image), _COST


def _repository(image: str) -> str:
    """Return the last part of an image's name, without tag and digest."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0]


def note_on_localhost(kubectl: tuple[str, ...], objects: list[ApiObject]) -> str:
    """Return what is wrong with images of `localhost/` on a cluster elsewhere; "" if nothing is.

    Args:
        kubectl: The program with its options.
        objects: The rendered chart.
    """
    named = {
        container["image"]
        for item in workloads(objects)
        for container in template_of(item)["spec"]["containers"]
        if container["image"].startswith("localhost/")
    }
    host = _host_of_cluster(kubectl) if named else None
    if host is None or _is_this_machine(host):
        return ""
    return (
        f"note: a node of {host} takes localhost/ for itself, so it must have these already: "
        f"{', '.join(sorted(named))}; --registry R builds and pushes them, --set image.registry=R "
        "names where they are"
    )


def _host_of_cluster(kubectl: tuple[str, ...]) -> str | None:
    """Return the host of the API server; None in a pod, which has an account and no context."""
    what = ("config", "view", "--minify", "--output=jsonpath={.clusters[0].cluster.server}")
    try:
        return urlsplit(run(*kubectl, *what)).hostname
    except SeedbedError:
        return None


def _is_this_machine(host: str) -> bool:
    """Return whether an address is of this machine: a socket can be bound to no other."""
    try:
        ((family, kind, _, _, address), *_) = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
        with socket.socket(family, kind) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True
