"""Claims between hosts: processes with host names of their own, whom the kernel refuses no lock."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seedbed.runtime.exit_codes import ExitCode

# It waits for a line before it takes the lock, so that several take it at once.
HOST = """
import fcntl, logging, socket, sys
from pathlib import Path
fcntl.flock = lambda *_: None
socket.gethostname = lambda: sys.argv[1]
from seedbed.runtime import claims, locks
claims.running_kernel = socket.gethostname
claims.EXPIRES_S, claims.RENEWED_S = 1.0, 0.1
logging.basicConfig()
sys.stdin.readline()
try:
    lock = locks.Lock(Path(sys.argv[2]))
except locks.LockHeld as holder:
    print("held by", holder, flush=True)
else:
    print("taken", flush=True)
    sys.stdin.readline()
    lock.release()
"""
Host = subprocess.Popen[str]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Callable[[str], Host]]:
    hosts: list[Host] = []

    def begin(name: str) -> Host:
        hosts.append(
            subprocess.Popen(
                [sys.executable, "-c", HOST, name, str(tmp_path / "run" / "seedbed.lock")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return hosts[-1]

    (tmp_path / "run").mkdir()
    yield begin
    for one in hosts:
        one.kill()
        one.communicate()


def tell(*hosts: Host) -> None:
    for one in hosts:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()


def answer(host: Host) -> str:
    assert host.stdout is not None
    return host.stdout.readline().strip()


def test_one_host_has_a_lock_until_it_releases_it(
    host: Callable[[str], Host], tmp_path: Path
) -> None:
    one, other, later = host("one"), host("other"), host("later")
    tell(one)
    assert answer(one) == "taken"
    tell(other)
    assert answer(other) == f"held by process {one.pid} on one: stop it there"
    (tmp_path / "run").rename(tmp_path / "moved")
    (tmp_path / "run").symlink_to(tmp_path / "moved")
    tell(one)
    assert one.wait() == 0
    tell(later)
    assert answer(later) == "taken"
    tell(later)
    assert later.wait() == 0
    assert [file.name for file in (tmp_path / "run").iterdir()] == ["seedbed.lock"]


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
def test_of_several_hosts_one_takes_over_what_a_host_that_is_gone_has_claimed(
    end: signal.Signals, host: Callable[[str], Host]
) -> None:
    gone = host("gone")
    tell(gone)
    assert answer(gone) == "taken"
    others = [host(f"host{number}") for number in range(4)]
    gone.send_signal(end)
    tell(*others)
    answers = sorted(answer(other) for other in others)
    assert answers[-1] == "taken"
    assert all(one.startswith("held by process") for one in answers[:-1])
    if end == signal.SIGSTOP:
        gone.send_signal(signal.SIGCONT)
        gone.wait()  # by itself: `communicate` closes what it reads, which would end it too
        _, errors = gone.communicate()
        assert gone.returncode == ExitCode.RUN_DIRECTORY
        assert "has taken it over" in errors
