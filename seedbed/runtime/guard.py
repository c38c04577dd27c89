"""A guard: a small process above one of ours, which ends whatever that one leaves behind.

An environment, a network or an agent of a user may start processes, daemons too, and may end its
own process at any moment, with exit code 0. So whatever runs such code has a guard:

- The guard adopts every process below it whose parent ends (`PR_SET_CHILD_SUBREAPER`). When the
  guarded process has ended, the guard ends all of them.
- A guarded process reports its own end (`leaving`). An end without a report is one that other code
  has caused, whatever the exit code is. After the report the interpreter may wait for threads and
  processes of other code, but not for long.
- A call into an environment may hold the interpreter lock, so that no thread of the process can end
  it in time (`runtime/calls.py`). The guard then does.
- A guard whose parent is killed kills the guarded process, and ends what is below.
- The kernel kills the guarded process where the guard is killed. What the guarded process has
  started then belongs to the next guard above, which finds it by `SEEDBED_GUARD` in its
  environment, and ends it.
- Where all guards are killed, the next process that opens the run directory ends the rest
  (`claim_run`).
"""

import contextlib
import ctypes
import math
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from seedbed.runtime import calls
from seedbed.runtime.exit_codes import HELP, ExitCode
from seedbed.runtime.limits import state_and_parent

# The guards of a process as PIDs separated by commas, the outermost first.
GUARDS = "SEEDBED_GUARD"
# The run directory of a process and of all below it.
_RUN = "SEEDBED_RUN_DIR"
_PR_SET_PDEATHSIG, _PR_GET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 2, 36
# Sent by the kernel to a guard whose parent has ended, if it is to end with its parent.
_ORPHANED = signal.SIGRTMIN
_FORWARDED = {
    *(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH),
}
_HANDLED = {*_FORWARDED, signal.SIGCHLD, signal.SIGTSTP, _ORPHANED}
_CRASHES = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
_POLL_S = 1.0
# Seconds that what is left behind has after SIGTERM, and in all.
_GRACE_S, _END_S = 2.0, 8.0
# Seconds that the interpreter has to end after the report.
_EXIT_S = 10.0
# Exit code of the interpreter where it could not write what was left of stdout.
_UNWRITTEN = 120
_report: int | None = None  # descriptor of the guarded process


def leaving(code: int | None = None) -> None:
    """Report to the guard that this process ends by itself, whatever its exit code is.

    Args:
        code: the exit code, with which the guard ends where the interpreter's own end takes long;
            None where the process ends at once.
    """
    global _report
    if _report is not None:
        with contextlib.suppress(OSError):
            os.write(_report, b"." if code is None else f"{code}".encode())
            os.close(_report)
        _report = None


def is_guarded() -> bool:
    """Return whether a guard runs above this process."""
    return _report is not None


def guards() -> list[int]:
    """Return the PIDs of the guards above this process, the outermost first."""
    return [int(pid) for pid in os.environ.get(GUARDS, "").split(",") if pid.isdigit()]


def run_guarded(main: Callable[[], int], is_restarted: bool = False) -> NoReturn:
    """Run `main` in a child of this process, and end as the child does. Called before any thread.

    Args:
        main: returns the exit code.
        is_restarted: a supervisor starts the process again after a crash. Otherwise the exit code
            of a crash in a call into an environment is ENVIRONMENT.
    """
    if not sys.platform.startswith("linux"):
        sys.exit(main())
    calls.take_over()
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    before = os.environ.get(GUARDS, "")
    os.environ[GUARDS] = f"{before},{os.getpid()}".lstrip(",")
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
    ends_with = ctypes.c_int()
    libc.prctl(_PR_GET_PDEATHSIG, ctypes.byref(ends_with))
    if ends_with.value:  # SIGKILL would leave nothing that ends what is below
        libc.prctl(_PR_SET_PDEATHSIG, _ORPHANED)
    reading, writing = os.pipe()
    guard, child = os.getpid(), os.fork()
    if child:
        os.close(writing)
        _Guard(child, reading, mask, is_restarted).run()
    os.close(reading)
    # Signals from a terminal go to the guard alone, which passes each on once.
    os.setpgid(0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard:
        os._exit(ExitCode.TERMINATED)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    global _report
    _report = writing
    code: int | str | None = ExitCode.INTERNAL
    try:
        code = main()
    except SystemExit as error:
        code = error.code
    finally:
        # A text as the code of SystemExit is a failure, which Python prints.
        leaving(code & 0xFF if isinstance(code, int) else int(code is not None))
    _end_processes()
    sys.exit(code)


def _end_processes() -> None:
    """End what other code has started by `multiprocessing`: Python would wait for it at its end."""
    if module := sys.modules.get("multiprocessing"):
        for process in module.active_children():
            process.kill()


class _Guard:
    """What a guard does above its guarded process, from the fork to its own end.

    Args:
        child: PID of the guarded process.
        report: descriptor that the guarded process writes its report to.
        mask: signals that were blocked before the guard's.
        is_restarted: as of `run_guarded`.
    """

    def __init__(
        self, child: int, report: int, mask: set[int | signal.Signals], is_restarted: bool
    ) -> None:
        self._child, self._report, self._mask = child, report, mask
        self._is_restarted = is_restarted
        self._reported, self._until = b"", math.inf
        self._passed_on: set[int] = set()
        self._told = ""

    def run(self) -> NoReturn:
        """Pass signals on until the child has ended; end what it has left, and end alike."""
        ended: int | None = None
        late = ""
        looked = time.monotonic()
        # No `sigtimedwait`: Python's returns what was never written where this process has been
        # stopped for longer than the timeout, and the child would get whatever signal that is.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        signal.setitimer(signal.ITIMER_REAL, _POLL_S, _POLL_S)
        while ended is None:
            found = signal.sigwaitinfo({*_HANDLED, signal.SIGALRM})
            before, looked = looked, time.monotonic()
            self._pass_on(found.si_signo)
            ended = _reap(self._child)
            self._read_report(looked)
            if ended is None:
                _end_orphans(self._child)
                waits, late = _waits_for(self._child, looked - before)
                if waits and not self._told:
                    _write(waits)
                self._told = waits
                if late or looked > self._until:
                    _kill(self._child, signal.SIGKILL)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)  # the last one, which nothing waits for
        _end_all_below()
        if late:
            _exit(ExitCode.ENVIRONMENT, late)
        if os.WIFSIGNALED(ended):
            self._end_by_signal(os.WTERMSIG(ended), looked > self._until)
        self._end_with_code(os.WEXITSTATUS(ended))

    def _pass_on(self, number: int) -> None:
        if number == signal.SIGTSTP:
            _stop_with(self._child)
        elif number == _ORPHANED:
            _kill(self._child, signal.SIGKILL)
        elif number in _FORWARDED:
            self._passed_on.add(number)
            _kill(self._child, number)
            _kill(self._child, signal.SIGCONT)  # a stopped process would never take it

    def _read_report(self, now: float) -> None:
        # Not by reading alone: another process may hold the other end open.
        if not self._reported and select.select([self._report], [], [], 0)[0]:
            self._reported = os.read(self._report, 8)
            self._until = now + _EXIT_S if self._reported.isdigit() else math.inf

    def _end_by_signal(self, number: int, was_killed: bool) -> NoReturn:
        """End as the child has; `was_killed` if it did not end in time after its report."""
        if self._reported.isdigit() and (was_killed or number in _CRASHES):
            if not int(self._reported):
                text = "the work was done, and then other code did not let the process end"
                _write(f"{text} ({signal_name(number)})")
            os._exit(int(self._reported))
        if number not in {*self._passed_on, signal.SIGKILL}:
            during = calls.PROCESS.during()
            text = f"the process was ended by {signal_name(number)}{during}: "
            if number in _FORWARDED:
                _write(f"{text}code that it ran, or `kill {self._child}`, has sent the signal")
            else:
                text += "code that it ran has "
                text += "crashed" if number in _CRASHES else "set a timer, or sent the signal"
                text += ", of an environment, a network or a library"
                if during and not self._is_restarted:
                    _exit(ExitCode.ENVIRONMENT, text)
                _write(text)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.pause()
        raise AssertionError("a process that has ended")

    def _end_with_code(self, code: int) -> NoReturn:
        if not self._reported:
            text = (
                f"the process was ended with exit code {code} by code that it ran, not by Seedbed: "
                "an environment, a network or an agent called sys.exit, os._exit, exec, or a "
                "library that ends the process"
            )
            _exit(ExitCode.ENVIRONMENT, text)
        # Other code may end the process with another code as the interpreter ends.
        if self._reported.isdigit() and not (code == _UNWRITTEN and not int(self._reported)):
            code = int(self._reported)
        os._exit(code)


def signal_name(number: int) -> str:
    """Return the name of a signal, such as `SIGTERM`; `signal 40` where it has none."""
    known = {known.value: known.name for known in signal.Signals}
    return known.get(number, f"signal {number}")


def _waits_for(child: int, since_s: float) -> tuple[str, str]:
    """Return what a child waits for that cannot tell it itself, and its late call, in words."""
    state = (state_and_parent(child) or "?")[0]
    if state == "t":  # a debugger's
        calls.PROCESS.put_off(since_s)
    waits, late = calls.PROCESS.unwatched()
    if state == "T":
        return f"process {child} is stopped: `kill -CONT {child}` continues it", late
    return f"{waits}, and no thread of the process runs" if waits else "", late


def _exit(code: ExitCode, text: str) -> NoReturn:
    _write(f"{text}\nseedbed: exit code {code:d} ({code.name}): {HELP[code]}")
    os._exit(code)


def _write(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"seedbed: {text}\n".encode())


def _stop_with(child: int) -> None:
    """Stop with the child, and continue with it, as a shell's Ctrl-Z and fg want it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGSTOP)
    begun = time.monotonic()
    os.kill(os.getpid(), signal.SIGSTOP)
    calls.PROCESS.put_off(time.monotonic() - begun)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGCONT)


def _reap(child: int) -> int | None:
    """Reap all that have ended; return the status of the child, None while it runs."""
    status = None
    while True:
        try:
            pid, found = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == 0:
            return status
        if pid == child:
            status = found


def _end_orphans(child: int) -> None:
    """End adopted processes of guards that are gone; `child` is the guarded process."""
    own = os.getpid()
    with contextlib.suppress(OSError):  # a kernel may lack the list
        if Path(f"/proc/{own}/task/{own}/children").read_text().split() == [str(child)]:
            return
    parents = dict(_parents())
    for pid in [pid for pid, parent in parents.items() if parent == own and pid != child]:
        guards = [int(each) for each in _guards_of(pid) if each.isdigit()]
        below = guards[guards.index(own) + 1 :] if own in guards else guards
        if any(guard not in parents for guard in below):
            for each in (pid, *_descendants(pid, parents)):
                _kill(each, signal.SIGKILL)


def _end_all_below() -> None:
    """End every process below this one: SIGTERM, and SIGKILL to what is left."""
    begun = time.monotonic()
    number = signal.SIGTERM
    while time.monotonic() < begun + _END_S:
        _reap(0)
        below = _descendants(os.getpid(), dict(_parents()))
        if not below:
            return
        if time.monotonic() > begun + _GRACE_S:
            number = signal.SIGKILL
        for pid in below:
            _kill(pid, number)
            _kill(pid, signal.SIGCONT)
        signal.sigtimedwait({signal.SIGCHLD}, 0.1)


def claim_run(run: Path) -> None:
    """End what a killed process of a run has left, and mark what this process starts from now on.

    Args:
        run: the run directory, absolute. The caller holds its lock.
    """
    alive = {str(pid) for pid, _ in _parents()}
    for pid in map(int, alive):
        if _variable(pid, _RUN) == str(run) and alive.isdisjoint(_guards_of(pid)):
            _kill(pid, signal.SIGKILL)
    os.environ[_RUN] = str(run)


def _descendants(of: int, parents: dict[int, int]) -> list[int]:
    found, level = list[int](), {of}
    while level:
        level = {pid for pid, parent in parents.items() if parent in level}
        found += level
    return found


def _parents() -> Iterator[tuple[int, int]]:
    """Yield each process of this machine, or container, with its parent; zombies not."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            found = state_and_parent(int(entry.name))
            if found is not None and found[0] not in "ZX":
                yield int(entry.name), found[1]


def _guards_of(pid: int) -> list[str]:
    return _variable(pid, GUARDS).split(",")


def _variable(pid: int, name: str) -> str:
    """Return a variable of the environment with which a process began; empty where unknown."""
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return ""
    start = f"{name}=".encode()
    found = [part for part in text.split(b"\0") if part.startswith(start)]
    return os.fsdecode(found[0][len(start) :]) if found else ""


def _kill(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
