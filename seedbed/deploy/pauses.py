"""Pause and resume of releases and of sets of runs, by a person.

A pause is a reason in a ConfigMap that the cost meter of a release, or the controller of a set,
obeys. Each reason that is written here is the command that has written it, so that a resume ends
that one, and no pause of a meter or of another program.
"""

import json
from collections.abc import Callable, Sequence

from seedbed.deploy.programs import run
from seedbed.deploy.releases import METER_SILENT_S, Release
from seedbed.deploy.set_releases import OVER, ClusterSet, pause_of, set_of_run, states_in_words
from seedbed.deploy.set_standing import sentences, standing
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.formats import duration

# The last resort runs each ten minutes, and acts where the meter is silent.
_LAST_RESORT_S = 600.0 + METER_SILENT_S
_REASON = "seedbed pause"


def pause(
    found: ClusterSet | Release, names: Sequence[str], print_line: Callable[[str], None]
) -> None:
    """Pause a release, a set, or runs of a set.

    Args:
        found: The release or the set.
        names: Runs of the set; none of them is the whole set.
        print_line: Takes lines on what happens.

    Raises:
        SeedbedError: DEPLOY, nothing would pause it, there is no such run, or kubectl fails; USAGE,
            a release has no runs to name.
    """
    one, names = _with_set(found, names)
    if isinstance(one, Release):
        print_line(_pause_release(one))
    elif names:
        for name in names:  # a wrong one, before any is paused
            one.entry(name)
        for name in names:
            print_line(_pause_run(one, name))
    else:
        print_line(_pause_set(one))


def resume(
    found: ClusterSet | Release,
    names: Sequence[str],
    force: bool,
    print_line: Callable[[str], None],
) -> None:
    """End the pause of a release, a set, or runs of a set.

    Args:
        found: The release or the set.
        names: Runs of the set; none of them is the whole set.
        force: End a pause of these runs, too, that a meter or another person has begun.
        print_line: Takes lines on what happens.

    Raises:
        SeedbedError: DEPLOY, it is over, its pause is in the values of its chart, there is no such
            run, or kubectl fails; USAGE, a release has no runs to name.
    """
    one, names = _with_set(found, names)
    if isinstance(one, Release):
        print_line(_resume_release(one))
    elif names:
        for name in names:
            one.entry(name)
        for name in names:
            print_line(_resume_run(one, name, force))
    else:
        print_line(_resume_set(one))


def resume_command(name: str, namespace: str, run: str = "") -> str:
    """Return the command that ends a pause.

    Args:
        name: Name of the release or of the set.
        namespace: Its namespace.
        run: Name of a run of the set; empty for the whole.
    """
    return " ".join(["seedbed", "resume", name, *([run] if run else []), "-n", namespace])


def _with_set(
    found: ClusterSet | Release, names: Sequence[str]
) -> tuple[ClusterSet | Release, Sequence[str]]:
    """Return what is meant: a run of a set that was named alone is paused in its set, too."""
    if isinstance(found, ClusterSet):
        return found, names
    if names:
        raise SeedbedError(
            ExitCode.USAGE,
            f"{found.name} in namespace {found.namespace} is a release, which has no runs to name",
        )
    the_set = set_of_run(found)
    return (found, ()) if the_set is None else (the_set, (found.name,))


def _pause_release(release: Release) -> str:
    state, meters = release.state, release.workloads("cost")
    if release.hold is not None:
        kind, reason = release.hold
        return f"{release.name} is {kind} already: {reason}"
    if state is None or not meters:
        why = "cost.enabled: false" if state is None else "it has left after the end"
        raise SeedbedError(
            ExitCode.DEPLOY,
            f"release {release.name} has no cost meter ({why}), which would pause it: `helm -n "
            f"{release.namespace} upgrade {release.name} CHART --reuse-values --set paused=true`",
        )
    _write(release.namespace, f"{release.name}-state", paused=_REASON)
    if not _has_meter(release):
        return (
            f"{release.name} is to pause, but its cost meter is not ready: the last resort takes "
            f"the pods to zero, within {duration(_LAST_RESORT_S)}; `seedbed check release "
            f"{release.name} -n {release.namespace}` names what keeps the meter"
        )
    return (
        f"{release.name} pauses: the cost meter takes its pods to zero within some ten seconds, "
        "and the learner writes a last checkpoint\n"
        f"to resume: {resume_command(release.name, release.namespace)}\n"
        f"its files: seedbed fetch {release.name} DIR -n {release.namespace}"
    )


def _resume_release(release: Release) -> str:
    name, state = release.name, release.state
    kind, reason = release.hold or ("", "")
    upgrade = f"`helm -n {release.namespace} upgrade {name} CHART --reuse-values"
    if state is None:
        raise SeedbedError(
            ExitCode.DEPLOY,
            f"release {name} has no cost meter (cost.enabled: false), which would resume it: "
            f"{upgrade} --set paused=false`",
        )
    if kind == "finished":
        key = reason.partition(":")[0] if reason.startswith("stop.") else "stop.KEY"
        raise SeedbedError(
            ExitCode.DEPLOY,
            f"{name} is finished: {reason}. A higher stop condition continues it: `seedbed deploy "
            f"EXPERIMENT.yaml --release {name} -n {release.namespace} --set "
            f"experiment.{key}=NUMBER`; its result: `seedbed fetch {name} DIR -n "
            f"{release.namespace}`",
        )
    if kind == "paused" and "paused" not in state:  # the meter has not read the value yet
        reason = "value"
    if kind == "paused" and reason == "value":
        raise SeedbedError(
            ExitCode.DEPLOY,
            f"{name} is paused by the value `paused` of its chart, which an upgrade ends: "
            f"{upgrade} --set paused=false`",
        )
    if kind != "paused":
        return f"{name} is neither paused nor finished: there is nothing to resume"
    _write(release.namespace, f"{name}-state", paused=None)
    return (
        f"{name} resumes: the cost meter brings back the pods from before the pause "
        f"({reason}) within some ten seconds"
    )


def _pause_set(one: ClusterSet) -> str:
    if one.paused:
        return f"{one.name} is paused already: {one.paused}"
    runs = one.runs
    if one.is_over:
        return f"{one.name} is over already: {states_in_words(runs)}"
    # The controller starts no other run from now on.
    _write(one.namespace, f"{one.name}-set-state", paused=_reason(one))
    awake = [x for x in one.awake.values() if x.state is not None and x.hold is None]
    for release in awake:
        _write(release.namespace, f"{release.name}-state", paused=_reason(one))
    lines = [f"{one.name} pauses: no other run starts"]
    if awake:
        lines[0] += (
            ", and these save a last checkpoint and go to zero within some ten seconds: "
            f"{', '.join(x.name for x in awake)}"
        )
    lines += [_without_meter(x) for x in awake if not _has_meter(x)]
    lines.append(f"to resume: {resume_command(one.name, one.namespace)}")
    lines.append(f"its files: seedbed fetch {one.name} DIR -n {one.namespace}")
    return "\n".join(lines)


def _resume_set(one: ClusterSet) -> str:
    if not one.paused:
        runs = one.runs
        if one.is_over:
            raise SeedbedError(
                ExitCode.DEPLOY,
                f"{one.name} is over: {states_in_words(runs)}. More seeds, values or frames in its "
                f"file continue it: `seedbed deploy SWEEP.yaml -n {one.namespace}`",
            )
        lines = [f"{one.name} is not paused"]
    elif one.paused != _reason(one):
        return (
            f"{one.name} stays paused by another, with the reason {one.paused!r}: `kubectl -n "
            f"{one.namespace} edit configmap {one.name}-set-state` ends that"
        )
    else:
        lines = []
    every = [*one.awake.values(), *one.resting.values()]
    held = {x.name: x for x in every if (x.state or {}).get("paused") == _reason(one)}
    # Of a run that began to rest in between, the controller keeps the pause as the run's own.
    of_runs = {key: x for key, x in one.state.items() if key.startswith("paused.")}
    own = {key.removeprefix("paused."): x for key, x in of_runs.items() if x != _reason(one)}
    for name, release in held.items():
        _replace(release.namespace, f"{name}-state", "paused", _reason(one), own.get(name))
    # After those of the runs, which the controller would take for pauses of their own.
    for key in (key for key, x in of_runs.items() if x == _reason(one)):
        _replace(one.namespace, f"{one.name}-set-state", key, _reason(one), None)
    if one.paused:
        _replace(one.namespace, f"{one.name}-set-state", "paused", _reason(one), None)
    back = [name for name in held if name not in own]
    if back:
        lines.append(f"{one.name} resumes, with {', '.join(back)}")
    elif not lines:
        lines.append(f"{one.name} resumes: its runs start as there is room")
    kept = own | {
        x.name: pause_of(x) for x in one.awake.values() if x.name not in held and pause_of(x)
    }
    lines += [f"{name} stays paused: {reason}" for name, reason in sorted(kept.items())]
    others = [x for x in sentences(standing(one)) if not x.startswith("paused: ")]
    lines += [f"{one.name}: {sentence}" for sentence in others]
    return "\n".join(lines)


def _pause_run(one: ClusterSet, name: str) -> str:
    release, key = one.awake.get(name), f"paused.{name}"
    if over := _over(one, name):
        return f"{name} is {over} already: there is nothing to pause"
    if key in one.state:
        return f"{name} is paused already: {one.state[key]}"
    _write(one.namespace, f"{one.name}-set-state", **{key: _reason(one, name)})
    held = release.hold if release is not None else None
    to_resume = f"to resume: {resume_command(one.name, one.namespace, name)}"
    if release is None or release.state is None:
        state = one.entry(name)["state"]
        return (
            f"{name} was {state} and has no pod: it is not started before it is resumed\n"
            f"{to_resume}"
        )
    if held is not None:
        return f"{name} was {held[0]} ({held[1]}), and is held by you, too\n{to_resume}"
    _write(one.namespace, f"{name}-state", paused=_reason(one, name))
    if not _has_meter(release):
        return f"{_without_meter(release)}\n{to_resume}"
    return (
        f"{name} pauses: it writes a last checkpoint, and its pods go to zero within some ten "
        f"seconds\n{to_resume}"
    )


def _resume_run(one: ClusterSet, name: str, force: bool) -> str:
    release = one.awake.get(name) or one.resting.get(name)
    key, ours = f"paused.{name}", _reason(one, name)
    by_person = one.state.get(key, "")
    held = pause_of(release) if release is not None else ""
    by_set = one.paused or (_reason(one) if held == _reason(one) else "")
    force_it = f"{resume_command(one.name, one.namespace, name)} --force"
    if not by_person and (over := _over(one, name)):
        return f"{name} is {over}; {_continues(one, one.entry(name)['state'])}"
    is_ours = by_person == ours or (force and bool(by_person))
    if by_person and not is_ours:
        return (
            f"{name} stays paused by another, with the reason {by_person!r}; to end it: {force_it}"
        )
    ends = held == ours or (force and held not in ("", "value", _reason(one)))
    if ends:
        again = _reason(one) if one.paused == _reason(one) else None
        _replace(one.namespace, f"{name}-state", "paused", held, again)
    if is_ours:
        _replace(one.namespace, f"{one.name}-set-state", key, by_person, None)
    if (is_ours or ends) and by_set:
        whole = resume_command(one.name, one.namespace)
        return (
            f"{name} is held no more by itself, and stays paused with the set; to end it: {whole}"
        )
    if held and not ends:
        if by_set:
            whole = resume_command(one.name, one.namespace)
            return f"{name} is paused with the set; to end it: {whole}"
        return f"{name} stays paused, with the reason {held!r}; to end it: {force_it}"
    if is_ours or ends:
        return f"{name} resumes: it trains as soon as there is room"
    return f"{name} is not paused: it is {_state_in_words(one, name)}"


def _continues(one: ClusterSet, state: str) -> str:
    """Return what continues a run that is over."""
    deploy = f"`seedbed deploy SWEEP.yaml -n {one.namespace}"
    if state in ("failed", "diverged"):
        return f"{deploy} --retry failed` starts it again from its newest checkpoint"
    if state == "pruned":
        return "others were better at its rung, and it is not trained further"
    return f"a higher stop condition in the set's file continues it: {deploy}`"


def _over(one: ClusterSet, name: str) -> str:
    """Return how a run has ended, with the reason; empty while it may train further frames."""
    release = one.awake.get(name) or one.resting.get(name)
    if release is not None and release.hold is not None and release.hold[0] == "finished":
        return f"finished ({release.hold[1]})"
    return _state_in_words(one, name) if one.entry(name)["state"] in OVER else ""


def _state_in_words(one: ClusterSet, name: str) -> str:
    entry = one.entry(name)
    reason = entry.get("reason")
    return f"{entry['state']} ({reason})" if reason else entry["state"]


def _reason(one: ClusterSet, name: str = "") -> str:
    return " ".join([_REASON, one.name, *([name] if name else [])])


def _has_meter(release: Release) -> bool:
    return any((x.get("status") or {}).get("readyReplicas") for x in release.workloads("cost"))


def _without_meter(release: Release) -> str:
    return (
        f"{release.name}: its cost meter is not ready, and the last resort takes its pods to zero, "
        f"within {duration(_LAST_RESORT_S)}"
    )


def _write(namespace: str, name: str, **data: str | None) -> None:
    """Set keys of a ConfigMap, and remove those whose value is None."""
    patch = json.dumps({"data": data})
    where = f"--namespace={namespace}"
    run("kubectl", where, "patch", "configmap", name, "--type=merge", f"--patch={patch}")


def _replace(namespace: str, name: str, key: str, before: str, after: str | None) -> None:
    """Replace or remove a key of a ConfigMap, if it has its value still."""
    path = f"/data/{key}"
    change = (
        {"op": "replace", "path": path, "value": after} if after else {"op": "remove", "path": path}
    )
    patch = json.dumps([{"op": "test", "path": path, "value": before}, change])
    where = f"--namespace={namespace}"
    run("kubectl", where, "patch", "configmap", name, "--type=json", f"--patch={patch}")
