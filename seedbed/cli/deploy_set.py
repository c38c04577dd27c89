"""`seedbed deploy` of a set of runs."""

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from seedbed.cli.arguments import positive
from seedbed.cli.set_options import SET_OPTIONS, add_set_options, read_set, resolve_set
from seedbed.config.load import override
from seedbed.config.schema import NAME_LETTERS
from seedbed.config.shipped import experiment_file, shipped_sweeps
from seedbed.config.yaml_text import load_yaml
from seedbed.deploy.caps import told_of_caps
from seedbed.deploy.chart_values import check_chart, profile_file
from seedbed.deploy.follow import follow_controller
from seedbed.deploy.images import build_and_push, note_on_localhost
from seedbed.deploy.plan import ApiObject
from seedbed.deploy.programs import run as call
from seedbed.deploy.set_fetch import copy_of_set
from seedbed.deploy.set_names import (
    Before,
    check_settings,
    names_of_runs,
    objects_in,
    objects_of_file,
    others_of,
)
from seedbed.deploy.set_releases import find_set
from seedbed.deploy.set_shapes import Chart, Shape, group_by_shape, render_shape
from seedbed.deploy.set_standing import news_of
from seedbed.deploy.sets import (
    SetRelease,
    at_once,
    check_chart_of,
    check_limits,
    check_names,
    check_rights,
    file_in,
    install_set,
    plan_of_release,
    render_set,
    write_files,
)
from seedbed.runtime.exit_codes import ConfigError, ExitCode, SeedbedError
from seedbed.runtime.terminal import print_lines
from seedbed.runtime.text import counted
from seedbed.sets.confirmation import choice_text, confirmation
from seedbed.sets.folder import as_in_folder
from seedbed.sets.needs import Limits
from seedbed.sets.plan import plan, plan_confirmation
from seedbed.sets.resolve import ResolvedSet, describe_some
from seedbed.sets.sweep import SET_LETTERS, Sweep, is_sweep

_OF_A_SET = (*SET_OPTIONS, "max_actors", "max_gpus", "retry", "render")
_MOST_NAMES = 6  # on one line
_SETTING, _OF_THE_SET = "experiment.", "set."


def add_set_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of a set of runs to those of a release."""
    group = parser.add_argument_group("a set of runs, with --max-learners")
    add = group.add_argument
    text = (
        "learners of all runs at once: deploy a set, whose controller starts each run when there "
    )
    text += "is room; with a sweep's file, or keys of --set with several values"
    add("--max-learners", type=positive, metavar="N", help=text)
    add("--max-actors", type=positive, metavar="N", help="actors of all runs at once")
    add("--max-gpus", type=positive, metavar="N", help="accelerators of all runs at once")
    add_set_options(group)
    add("--retry", choices=("failed",), help="start the runs of the set that have failed")
    text = "write the objects of the set to DIR/set.yaml, and install nothing; needs no cluster"
    add("--render", type=Path, metavar="DIR", help=text)


def is_deployed_as_set(args: argparse.Namespace) -> bool:
    """Return whether a command deploys a set of runs.

    Raises:
        SeedbedError: USAGE, it is one, and does not have --max-learners.
    """
    if args.max_learners is not None:
        return True
    given = [name for name in _OF_A_SET if getattr(args, name) is not None]
    if given or _is_sweep(args.experiment):
        what = f"--{given[0]}".replace("_", "-") if given else args.experiment
        raise SeedbedError(
            ExitCode.USAGE,
            f"{what} is of a set of runs: say how many may train at once, --max-learners N",
        )
    return False


def _is_sweep(target: str) -> bool:
    if target in shipped_sweeps():
        return True
    try:
        return is_sweep(load_yaml(experiment_file(target).read_text(encoding="utf-8")))
    except (SeedbedError, OSError, UnicodeDecodeError, yaml.YAMLError):
        return False  # which the reader of an experiment tells


def deploy_set(args: argparse.Namespace) -> None:
    """Check the runs, show what they take, and install the release of the set.

    Raises:
        SeedbedError: CONFIG, a setting or a value is wrong, or the set is too large; DEPLOY, a
            program failed, or a right is missing.
    """
    check_chart(args.chart)
    if args.retry is not None and args.render is not None:
        raise SeedbedError(
            ExitCode.USAGE,
            "--retry changes the set on the cluster, and --render DIR changes no cluster: leave "
            "one of them out",
        )
    settings, given, of_the_set = _parted(args.set)
    profiles = [profile_file(args.chart, name) for name in args.profile]
    registry = {"image": {"registry": args.registry}} if args.registry else {}
    chart = Chart(args.chart, args.namespace, profiles, given)
    args.name = args.name or args.release
    sweep = _with_settings(read_set(args, args.experiment, settings), chart.settings())
    _check_name(sweep, args.experiment)
    wanted = resolve_set(sweep, args.experiment)
    limits = Limits(args.max_learners, args.max_actors or 0, args.max_gpus or 0)
    before = Before(wanted, _objects_before(args, wanted.name))
    folder = None if args.confirm is None else _copy_of(args, wanted)
    check_settings(wanted, before)
    fresh = before.confirmed if folder is None else confirmation(folder, wanted, args.confirm)
    every = wanted.joined(fresh)
    choice = choice_text(fresh) if fresh is not None else ""
    shapes = _shapes(every, chart, registry)
    check_limits(shapes, limits)
    names = names_of_runs(every, before)

    def render(shapes: Sequence[Shape]) -> SetRelease:
        return render_set(every, shapes, chart, limits, of_the_set, names, choice)

    release = render(shapes)
    print_lines(f"{plan(wanted, args.experiment, Path(wanted.name) / 'not there')}")
    if fresh is not None:
        print_lines(plan_confirmation(fresh, folder, at_once(shapes, limits)))
    print_lines("\n".join(plan_of_release(every, shapes, limits, release)))
    if others := others_of(every, before):
        print_lines(
            f"  beside these the set has {counted(len(others), 'run')} that this command does not "
            f"name, and that go on: {describe_some(others, _MOST_NAMES)}"
        )
    if args.dry_run:
        print_lines("nothing is installed (--dry-run)")
        return
    if args.render is not None:
        file = write_files(release, args.render)
        print_lines(
            f"{file} has the objects of the set: kubectl -n {args.namespace} apply --server-side "
            f"-f {file}"
        )
        return
    call("kubectl", f"--namespace={args.namespace}", "get", "--raw=/version")
    check_chart_of(wanted.name, args.namespace, is_set=True)
    check_names(wanted, names, args.namespace)
    check_rights(release)
    if args.registry:
        source = Path(__file__).resolve().parents[2]
        built: dict[str, Any] = {}
        for shape in shapes:
            experiment = shape.runs[0].experiment
            built[shape.key] = build_and_push(source, args.registry, experiment, shape.objects)
        shapes = _shapes(every, chart, built)
        release = render(shapes)
    _install(args, wanted, release, shapes)


def _install(
    args: argparse.Namespace, wanted: ResolvedSet, release: SetRelease, shapes: Sequence[Shape]
) -> None:
    """Install the release, and follow its controller until it is up."""
    kubectl = ("kubectl", f"--namespace={args.namespace}")
    if note := note_on_localhost(kubectl, shapes[0].objects):
        print_lines(note)
    install_set(release, args.retry)
    at = f"{wanted.name} -n {args.namespace}"
    try:
        follow_controller(kubectl, wanted.name, release.objects, print_lines)
    except SeedbedError as error:
        told = told_of_caps(wanted.name, args.namespace, wanted.sweep.budget.dollars)
        if not told:
            raise
        raise SeedbedError(error.code, f"{error}; {told}") from error
    print_lines(f"{wanted.name} is up: {news_of(wanted.name, args.namespace)}")
    print_lines(f"its runs: seedbed list {at}")
    print_lines(f"which setting is better: seedbed compare {at}")
    print_lines(f"the end: helm -n {args.namespace} uninstall {wanted.name} (its volumes stay)")


def _objects_before(args: argparse.Namespace, name: str) -> list[ApiObject]:
    """Return the objects of an earlier release of a set; a plan alone asks no cluster."""
    if args.render is not None:
        return objects_of_file(file_in(args.render), name)
    return [] if args.dry_run else objects_in(args.namespace, name)


def _copy_of(args: argparse.Namespace, wanted: ResolvedSet) -> Path:
    """Return a folder with what a set on the cluster has measured, to be ranked.

    Raises:
        SeedbedError: DEPLOY, there is no such set; RUN_DIRECTORY, none of its runs has begun;
            RESUME_REFUSED, they have other settings.
    """
    try:
        folder = copy_of_set(find_set(wanted.name, args.namespace), print_lines)
    except SeedbedError as error:
        text = "--confirm takes the best two settings of a set that has trained on the cluster, "
        text += "and without it the same command trains it"
        raise SeedbedError(error.code, f"{text}. {error}") from error
    as_in_folder(folder, wanted)
    return folder


def _shapes(wanted: ResolvedSet, chart: Chart, images: Mapping[str, Any]) -> list[Shape]:
    """Return the rendered shapes.

    Args:
        wanted: The set.
        chart: The chart of its runs.
        images: Values that name images, of each shape by its key, or of all.
    """
    with tempfile.TemporaryDirectory(prefix="seedbed-deploy-") as folder:
        return [
            render_shape(wanted, key, runs, chart, Path(folder), images.get(key, images))
            for key, runs in group_by_shape(wanted).items()
        ]


def _parted(given: Sequence[str]) -> tuple[list[str], dict[str, Any], dict[str, Any]]:
    """Return settings, values of the chart `seedbed`, and values of the chart `seedbed-set`."""
    settings, values, of_the_set = [], dict[str, Any](), dict[str, Any]()
    for text in given:
        if text.startswith(_SETTING):
            settings.append(text.removeprefix(_SETTING))
        elif text.startswith(_OF_THE_SET):
            override(of_the_set, text.removeprefix(_OF_THE_SET))
        else:
            override(values, text)
    return settings, values, of_the_set


def _check_name(sweep: Sweep, source: str) -> None:
    """Refuse a name of a set that is too long, with the longest name of a run that it would make.

    Raises:
        SeedbedError: CONFIG.
    """
    if len(sweep.name) <= SET_LETTERS:
        return
    short = sweep.model_copy(update={"name": sweep.name[:SET_LETTERS].rstrip("-")})
    cut = resolve_set(short, source)
    ends = [run.name.removeprefix(cut.name) for run in cut.runs]
    longest = sweep.name + max(ends, key=len)
    raise ConfigError(
        f"name: {sweep.name!r} has {len(sweep.name)} letters, and the name of a set at most "
        f"{SET_LETTERS}: a run of it would be called {longest}, with {len(longest)} letters of at "
        f"most {NAME_LETTERS}; nothing is installed"
    )


def _with_settings(sweep: Sweep, settings: Mapping[str, Any]) -> Sweep:
    """Return a sweep with the settings of profiles below its own."""
    known = {key: value for key, value in settings.items() if key not in sweep.axes}
    return sweep.model_copy(update={"set": {**known, **sweep.set}}) if known else sweep
