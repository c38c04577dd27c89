"""Install an experiment on Kubernetes, or upgrade it, and follow it until its actors play.

With --max-learners it is a set of runs: a controller starts them while there is room.
The file is the one that `seedbed train` takes: actor.processes and gossip.replicas are the first
numbers of actors and learners. With --registry the images are built from this checkout and pushed.
"""

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from seedbed.cli.deploy_set import add_set_arguments, deploy_set, is_deployed_as_set
from seedbed.config import Experiment, load_experiment
from seedbed.config.load import override, parse_experiment
from seedbed.config.shipped import experiment_file
from seedbed.deploy.chart_values import (
    CHART,
    check_chart,
    profile_file,
    values_file,
    values_of,
)
from seedbed.deploy.follow import follow
from seedbed.deploy.images import build_and_push, note_on_localhost
from seedbed.deploy.plan import (
    ApiObject,
    first_pod,
    objects_of,
    only,
    plan,
    replicas_of,
    run_directory_of,
    template_of,
)
from seedbed.deploy.programs import has_namespace
from seedbed.deploy.programs import run as call
from seedbed.deploy.releases import find_release
from seedbed.deploy.sets import check_chart_of
from seedbed.deploy.sizes import check_sizes

_SOURCE = Path(__file__).resolve().parents[2]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `deploy EXPERIMENT`."""
    add = parser.add_argument
    text = "a YAML file, or the name of a shipped experiment such as cartpole-vtrace, or of a sweep"
    add("experiment", metavar="EXPERIMENT.yaml", help=text)
    add("--release", metavar="NAME", help="name of the release (default: name of the experiment)")
    add_release_options(parser)
    add_set_arguments(parser)


def add_release_options(parser: argparse.ArgumentParser) -> None:
    """Add what several experiments can share: the namespace, images, values and the chart."""
    add = parser.add_argument
    add("--namespace", "-n", default="default", help="namespace (default: %(default)s)")
    text = "build the images and push them to R, such as europe-docker.pkg.dev/PROJECT/seedbed"
    add("--registry", metavar="R", help=text)
    text = "profile of the chart, such as gke-autopilot, or a file of values (repeatable)"
    add("--profile", action="append", default=[], metavar="PROFILE", help=text)
    text = "value of the chart (repeatable; YAML); experiment.a.b=c is a key of the experiment"
    add("--set", action="append", default=[], metavar="a.b=c", help=text)
    text = "show the pods and what they cost an hour, and install nothing; needs no cluster"
    add("--dry-run", action="store_true", help=text)
    text = "chart, a folder or oci://HOST/PATH (default: the one of this Seedbed)"
    add("--chart", default=str(CHART), help=text)


def run(args: argparse.Namespace) -> None:
    """Check, build and push if asked, show the plan, install, and follow.

    Raises:
        SeedbedError: CONFIG, the experiment or a value is wrong; RESUME_REFUSED, the run of the
            release has begun with other settings; DEPLOY, a program failed; LEARNER_UNREACHABLE,
            actors do not play in time.
    """
    if is_deployed_as_set(args):
        deploy_set(args)
        return
    release, objects = install_release(args)
    if not args.dry_run:
        _follow(args.namespace, release, objects)


def install_release(args: argparse.Namespace) -> tuple[str, list[ApiObject]]:
    """Check, build and push if asked, show the plan, and install unless it is a dry run.

    Args:
        args: Of a parser with the experiment, the release and `add_release_options`.

    Returns:
        Name and objects of the release.

    Raises:
        SeedbedError: As `run`, but for LEARNER_UNREACHABLE.
    """
    check_chart(args.chart)
    follows, given, experiment = _layers(args)
    profiles = [f"--values={profile_file(args.chart, name)}" for name in args.profile]
    release, namespace = args.release or experiment.name, f"--namespace={args.namespace}"
    kubectl = ("kubectl", namespace)
    with tempfile.TemporaryDirectory(prefix="seedbed-deploy-") as folder:
        values = partial(values_file, Path(folder))
        chart = [release, args.chart, namespace, values("experiment", follows), *profiles]
        own = values("set", given)
        named = [values("registry", {"image": {"registry": args.registry}})] * bool(args.registry)
        # Wrong values are wrong without a cluster, and for every Helm.
        offline = ("helm", "template", *chart, *named, own, "--kube-version=1.33.0")
        manifest = call(*offline)
        objects = objects_of(manifest)
        _check_experiment(objects)
        given_files = (Path(x.partition("=")[2]) for x in offline if x.startswith("--values="))
        check_sizes(objects, manifest, (file.read_text() for file in given_files), args.chart)
        title = f"{release} in namespace {args.namespace}, from {args.experiment}:"
        if args.dry_run:
            _print_line("\n".join([title, *plan(objects), "nothing is installed (--dry-run)"]))
            return release, objects
        check_chart_of(release, args.namespace, is_set=False)
        # As the cluster would have it: the live numbers of pods, 0 where the run is finished.
        live = ("--dry-run=server", "--is-upgrade", "--disable-openapi-validation")
        if args.registry:
            # What the cluster refuses, before minutes of building.
            call(*kubectl, "get", "--raw=/version")
            call("helm", "template", *chart, *named, own, *live)
            built = build_and_push(_SOURCE, args.registry, experiment, objects)
            chart.append(values("images", built))
        chart.append(own)
        objects = objects_of(call("helm", "template", *chart, *live))
        _print_line("\n".join([title, *plan(objects)]))
        if note := note_on_localhost(kubectl, objects):
            _print_line(note)
        # Whoever may install into a namespace may not be one who makes namespaces.
        missing = ["--create-namespace"] * (not has_namespace(args.namespace))
        call("helm", "upgrade", "--install", *chart, *missing)
    return release, objects


def _check_experiment(objects: list[ApiObject]) -> None:
    """Refuse an experiment, as the chart completes it, that its learner would refuse.

    Raises:
        SeedbedError: CONFIG.
    """
    for item in objects:
        if (text := item.get("data", {}).get("experiment.yaml")) is not None:
            parse_experiment(text, (), f"the experiment of {item['metadata']['name']}")


def _follow(namespace: str, release: str, objects: list[ApiObject]) -> None:
    """Follow the release until its actors play, and say what to do next."""
    kubectl = ("kubectl", f"--namespace={namespace}")
    learner, actor = only(objects, "learner"), only(objects, "actor")
    numbers = {"learner": replicas_of(learner), "actor": replicas_of(actor)}
    if not numbers["learner"]:
        name = learner["metadata"]["labels"]["app.kubernetes.io/instance"]
        numbers = find_release(name, namespace).resuming()
    if not numbers.get("learner"):
        _print_line(
            f"{release} is finished or paused: `helm {kubectl[1]} status {release}` says more, "
            f"and `seedbed fetch {release} DIR {kubectl[1]}` brings the result"
        )
        return
    containers = template_of(learner)["spec"]["containers"]
    run_dir = run_directory_of(learner)
    sidecars = sum(container["name"] == "actor" for container in containers)
    pod, actors = first_pod(learner), numbers.get("actor", 0) + sidecars
    follow(kubectl, release, objects, pod, run_dir, actors, _print_line)
    _print_line(f"{release} is up: {'its actors play' if actors else 'it has no actors yet'}")
    status = (*kubectl, "exec", pod, "-c=learner", "--", "seedbed", "status")
    print(call(*status, run_dir))
    _print_line(f"this page again: {' '.join(status)} {run_dir}")
    scale = f"scale deployment/{actor['metadata']['name']} --replicas=50"
    _print_line(f"more actors: {' '.join(kubectl)} {scale}")
    _print_line(f"the end: helm {kubectl[1]} uninstall {release} (its volumes stay)")
    _print_line(f"the result, at any time: seedbed fetch {release} DIR {kubectl[1]}")


def _print_line(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _layers(args: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any], Experiment]:
    """Return values that follow from the experiment, values of --set, and the experiment.

    Raises:
        SeedbedError: CONFIG, the experiment or a --set is wrong.
    """
    prefix = "experiment."
    own = [x.removeprefix(prefix) for x in args.set if x.startswith(prefix)]
    experiment = load_experiment(args.experiment, own)
    given: dict[str, Any] = {}
    for value in args.set:
        override(given, value)
    text = experiment_file(args.experiment).read_text()
    return values_of(experiment, text, given), given, experiment
