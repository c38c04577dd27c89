"""Train a set of runs: every combination of some values, with several seeds each.

A key of --set with several values is an axis, such as `learner.optimizer.learning_rate=1e-3,3e-3`.
The same command run again resumes; with more values or seeds it adds what is new. A file takes
ranges, combinations to leave out and keys that move together. The folder of a set resumes it, too.
"""

import argparse
import shlex
import sys
from pathlib import Path

from seedbed.cli.arguments import add_set, positive
from seedbed.cli.output import add_json, emit, print_result
from seedbed.cli.set_options import SET_OPTIONS, add_set_options, read_set, resolve_set
from seedbed.config.without_effect import settings_without_effect
from seedbed.runtime.exit_codes import ExitCode, RunDirectoryError, SeedbedError
from seedbed.runtime.locks import Lock, LockHeld
from seedbed.runtime.paths import shown
from seedbed.runtime.signals import on_stop_signals
from seedbed.runtime.terminal import print_lines
from seedbed.runtime.text import counted
from seedbed.sets.code import check_code, code_of, note_begin
from seedbed.sets.confirmation import confirmation
from seedbed.sets.disk import describe_disk
from seedbed.sets.driver import Driver
from seedbed.sets.ends import code_name, has_failed, read_ends
from seedbed.sets.folder import (
    Member,
    as_in_folder,
    is_folder_of_runs,
    is_set,
    lock_file,
    read_members,
    sweep_file,
    with_bound_of,
    write_set,
)
from seedbed.sets.halving import check_halving, members_at_rungs
from seedbed.sets.live import LiveSet
from seedbed.sets.plan import plan, plan_confirmation, table, to_go
from seedbed.sets.resolve import ResolvedSet
from seedbed.sets.shares import Shares
from seedbed.sets.stopped import is_stopped
from seedbed.sets.sweep import Budget

# Options that a folder of experiments alone cannot take.
_OF_A_SWEEP = ("set", *SET_OPTIONS)
_NOTICE = "stopping each run with a last checkpoint; a second signal ends them at once"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `sweep TARGET`."""
    add = parser.add_argument
    text = "a sweep's YAML file, an experiment's, the name of a shipped one, or the folder of a set"
    add("target", metavar="TARGET", help=text)
    add_set(parser)
    add_set_options(parser)
    add("--out", type=Path, metavar="DIR", help="folder of the set (default: sweeps/NAME)")
    text = "runs at once (default: 1); auto fits them to cores, memory and devices, as measured"
    add("--parallel", type=_parallel, default=1, metavar="N", help=text)
    text = "runs that share an accelerator (default: 1)"
    add("--runs-per-device", type=positive, default=1, metavar="N", help=text)
    text = "start the runs that have failed, or that `seedbed stop` has stopped, from their newest "
    text += "checkpoints"
    add("--retry", choices=("failed", "stopped"), help=text)
    text = "begin runs under other code than the set's, to be compared apart"
    add("--other-code", action="store_true", help=text)
    output = parser.add_mutually_exclusive_group()
    text = "print the runs and what they take; write and start nothing"
    output.add_argument("--dry-run", action="store_true", help=text)
    text = "write the folder, print one command a line for another scheduler, and start nothing"
    output.add_argument("--print", action="store_true", help=text)
    text = "train the run of line N of --print alone, as for one task of an array"
    output.add_argument("--line", type=positive, metavar="N", help=text)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Train what is not finished; return the exit code.

    Raises:
        SeedbedError: CONFIG, a setting is wrong; RUN_DIRECTORY, the folder is in use or cannot be
            used; RESUME_REFUSED, its runs have other settings; SET_FAILED, a run failed.
    """
    target = Path(args.target)
    folder = target if args.out is None and is_folder_of_runs(target) else None
    budget, is_new = None, False
    if folder is None or is_set(folder):
        source = sweep_file(folder) if folder is not None else args.target
        wanted = resolve_set(read_set(args, source, args.set), args.target)
        folder = folder or args.out or Path("sweeps") / wanted.name
        wanted = with_bound_of(folder, wanted)
        budget = wanted.sweep.budget
        check_halving(folder, wanted)
        if wanted.sweep.halving.first and (args.print or args.line is not None):
            raise SeedbedError(
                ExitCode.USAGE,
                "--print and --line start runs apart from each other, and halving ranks all of "
                "them at each rung: leave them out, or set halving.first to 0",
            )
        runs = as_in_folder(folder, wanted)
        print_lines(plan(wanted, args.target, folder))
        if not wanted.sweep.halving.first:  # whose plan has the frames of each rung
            print_lines(f"  {to_go(folder, runs, args.parallel or 1, args.retry)}")
        for line in settings_without_effect(wanted.base):
            print_lines(f"  {line}")
        code = code_of(run.experiment for run in wanted.runs)
        if args.dry_run:
            there = read_members(folder) if is_set(folder) else []
            check_code(folder, code, args.other_code, is_kept=False)
            print_lines(describe_disk(folder, there, max(len(there), len(wanted.runs))))
            fresh = confirmation(folder, wanted, args.confirm) if args.confirm else None
            if fresh is not None:
                print_lines(plan_confirmation(fresh, folder, args.parallel or 1))
            emit(table([*runs, *(fresh.runs if fresh is not None else ())]))
            return ExitCode.OK
        is_new = _write(folder, wanted)
        check_code(folder, code, args.other_code)
        if args.confirm is not None:
            _confirm(folder, wanted, args.confirm, args.parallel)
    elif any(getattr(args, option) for option in _OF_A_SWEEP):
        raise SeedbedError(
            ExitCode.USAGE,
            f"{target} has experiments and no sweep: change their files, and leave out "
            f"{', '.join(f'--{option}'.replace('_', '-') for option in _OF_A_SWEEP)}",
        )
    else:
        members = read_members(folder)
        check_code(folder, code_of(member.experiment for member in members), args.other_code)
        print_lines(to_go(folder, members, args.parallel or 1, args.retry))
    if args.line is not None:
        return _train_line(folder, args.line)
    if args.print or args.dry_run:
        emit("\n".join(shlex.join(_command(member)) for member in read_members(folder)))
    else:
        _drive(args, folder, budget, is_new)
    return ExitCode.OK


def _write(folder: Path, wanted: ResolvedSet) -> bool:
    """Write the set; return whether runs of the folder are new or have changed."""
    written = write_set(folder, wanted)
    parts = [f"{counted(len(written.added), 'run')} added"]
    if written.changed:
        parts.append(f"{len(written.changed)} changed, such as {written.changed[0]}")
    if written.left:
        parts.append(
            f"{len(written.left)} of the folder are not in this command, and go on too: such as "
            f"{written.left[0]}"
        )
    print_lines(f"{shown(folder)}: {', '.join(parts)}")
    return bool(written.added or written.changed)


def _confirm(folder: Path, wanted: ResolvedSet, seeds: int, at_once: int | None) -> None:
    best = confirmation(folder, wanted, seeds)
    print_lines(plan_confirmation(best, folder, at_once or 1))
    written = write_set(folder, best, confirms=True)
    print_lines(f"confirm: {counted(len(written.added), 'run')} added")


def _command(member: Member) -> list[str]:
    """Return the command that trains one run, wherever it is started."""
    words = ("train", str(member.file.absolute()), "--run-dir", str(member.run.absolute()))
    return [sys.executable, "-m", "seedbed", *words]


def _train_line(folder: Path, number: int) -> int:
    """Train one run in this process; return the exit code.

    Args:
        folder: The folder of the set.
        number: Of the line that `--print` prints, from 1.

    Raises:
        SeedbedError: USAGE, there is no such line.
    """
    members = read_members(folder)
    if number > len(members):
        raise SeedbedError(
            ExitCode.USAGE,
            f"--line {number}: {shown(folder)} has {counted(len(members), 'run')}: nothing is "
            "started",
        )
    from seedbed.cli.main import main  # which has imported this module

    member = members[number - 1]
    note_begin(folder, member.name)
    return main(["train", str(member.file), "--run-dir", str(member.run)])


def _drive(args: argparse.Namespace, folder: Path, budget: Budget | None, is_new: bool) -> None:
    try:
        lock = Lock(lock_file(folder))
    except LockHeld as holder:
        if is_new:
            print_lines(f"{shown(folder)}: the process that drives it starts them, too")
            return
        raise RunDirectoryError(
            f"{folder} is driven by {holder}. It starts what was added to the folder"
        ) from None
    except OSError as error:
        raise RunDirectoryError(f"cannot lock {folder}: {error}") from error
    try:
        members = read_members(folder)
        print_lines(describe_disk(folder, members, len(members)))
        device = members[0].experiment.learner.device
        live = LiveSet(folder, sys.stderr)
        shares = Shares(args.parallel, device, args.runs_per_device, live.tell)
        driver = Driver(folder, shares, live, args.retry, budget)
        on_stop_signals(driver.stop, notice=_NOTICE)
        driver.run()
        live.close()
    finally:
        lock.release()
    members = members_at_rungs(folder)
    finished = [member.name for member in members if member.is_finished and member.goes_to_end]
    failed = {
        member.name: read_ends(member)[-1]["code"] for member in members if has_failed(member)
    }
    pruned = [one.name for one in members if one.is_pruned and one.name not in failed]
    ended = {*finished, *failed, *pruned}
    stopped = [one.name for one in members if one.name not in ended and is_stopped(one)]
    waiting = len(members) - len(ended) - len(stopped)
    counts = {
        "failed": len(failed), "pruned": len(pruned), "stopped by a person": len(stopped),
        "to go on": waiting,
    }  # fmt: skip
    words = [f"{count} {state}" for state, count in counts.items() if count]
    whole = counted(len(members), "run")
    print_lines(", ".join([f"set: {len(finished)} of {whole} finished", *words]))
    if stopped:
        print_lines("--retry stopped starts those that a person has stopped")
    bound, brake = driver.admission.bound, driver.admission.brake
    if bound:
        print_lines(f"ended by {bound}; the same command with a larger one goes on")
    result = {
        "finished": finished, "failed": failed, "pruned": pruned, "stopped": stopped,
        "waiting": waiting,
        "runs": len(members), "ended_by": bound or None,
    }  # fmt: skip
    print_result(args, result)
    if driver.shortage and waiting:
        raise RunDirectoryError(driver.shortage)
    if brake:
        raise SeedbedError(ExitCode.SET_FAILED, brake)
    if failed:
        named = ", ".join(f"{name}: {code_name(code)}" for name, code in failed.items())
        lost = [one.name for one in members if one.is_pruned and one.name in failed]
        text = f"{len(failed)} of {len(members)} runs failed: {named}"
        text += "; --retry failed starts them" if len(lost) < len(failed) else ""
        text += f"; of pruned settings, which stay: {', '.join(lost)}" if lost else ""
        raise SeedbedError(ExitCode.SET_FAILED, text)


def _parallel(text: str) -> int | None:
    if text != "auto" and not text.lstrip("-").isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number of runs nor auto")
    return None if text == "auto" else positive(text)
