"""Calls into environments: which one has not come back, and since when.

A call is kept in memory that other processes may map, so that whoever waits can name it, and can
end it where the process itself cannot: where the call holds the interpreter lock.
"""

import mmap
import os
import struct
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from seedbed.config.environment import Actor

# Names of calls, by their numbers in a record.
_NONE, CONSTRUCTION, RESET, STEP, RENDER, CLOSE, CHECKER = range(7)
_NAMES = {
    CONSTRUCTION: "construction",
    RESET: "reset",
    STEP: "step",
    RENDER: "render",
    CLOSE: "close",
    CHECKER: "Gymnasium's checker",
}
ALL = -1  # environments of a library that steps them together
# Seconds after which a call is told of.
NOTICE_S = 10.0
KEY = "actor.environment_timeout_s"
DEFAULT_S: float = Actor.model_fields["environment_timeout_s"].default
# What a process has more time for than its own watchdog, before another one ends it.
GRACE_S = 5.0
# Kind, environment, monotonic seconds, which are those of the machine.
_RECORD = struct.Struct("=qqd")


class Call(NamedTuple):
    """A call that has not come back.

    Attributes:
        kind: one of the numbers above.
        environment: its number; `ALL` of several.
        since: `time.monotonic` of its begin.
    """

    kind: int
    environment: int
    since: float

    @property
    def busy_s(self) -> float:
        """Seconds since its begin."""
        return time.monotonic() - self.since

    def named(self, name: str) -> str:
        """Return the call in words, such as `reset of environment 3 of CartPole-v1`.

        Args:
            name: the `environment.id`.
        """
        which = "all environments" if self.environment == ALL else f"environment {self.environment}"
        return f"{_NAMES.get(self.kind, 'a call')} of {which} of {name}"

    def waited_for(self, name: str) -> str:
        """Return what a run waits for, in words; "" before `NOTICE_S`."""
        busy_s = self.busy_s
        return f"waiting {busy_s:.0f} s for {self.named(name)}" if busy_s >= NOTICE_S else ""

    def late(self, name: str, timeout_s: float) -> str:
        """Return the sentence of a call that took longer than its limit."""
        return (
            f"{self.named(name)} has not come back for {self.busy_s:.1f} s ({KEY} is "
            f"{timeout_s:g}): raise it, or see why the call takes so long"
        )


class CallRecord:
    """The call of one thread. As a context manager it has no call at the end of its block.

    Args:
        memory: where it is kept; None: of this process alone.
        offset: of the record in the memory, in bytes.
    """

    SIZE = _RECORD.size

    def __init__(self, memory: "mmap.mmap | bytearray | None" = None, offset: int = 0) -> None:
        self._memory = bytearray(_RECORD.size) if memory is None else memory
        self._offset = offset

    def begin(self, kind: int, environment: int) -> None:
        """Note that a call begins, in place of the one before."""
        _RECORD.pack_into(self._memory, self._offset, kind, environment, time.monotonic())

    def copy(self, call: Call) -> None:
        """Take over a call that another process has begun."""
        _RECORD.pack_into(self._memory, self._offset, *call)

    def end(self) -> None:
        """Note that there is no call."""
        self.begin(_NONE, 0)

    def __enter__(self) -> "CallRecord":
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    @property
    def call(self) -> Call | None:
        """The call that has not come back."""
        call = self._read()
        return None if call.kind == _NONE else call

    @property
    def changed_at(self) -> float:
        """`time.monotonic` of the newest begin or end of a call."""
        return self._read().since

    def _read(self) -> Call:
        return Call._make(_RECORD.unpack_from(self._memory, self._offset))


def shared_memory(records: int) -> int:
    """Return a descriptor of memory of no file system with so many records; `map_records` maps it.

    Args:
        records: number of records.
    """
    descriptor = os.memfd_create("seedbed-calls")
    os.posix_fallocate(descriptor, 0, records_bytes(records))
    return descriptor


def records_bytes(records: int) -> int:
    """Return the bytes of records, whole pages."""
    return -(-records * CallRecord.SIZE // mmap.PAGESIZE) * mmap.PAGESIZE


def map_records(descriptor: int, records: int) -> list[CallRecord]:
    """Return the records at the beginning of shared memory.

    Args:
        descriptor: of the memory; not closed here.
        records: their number.
    """
    memory = mmap.mmap(descriptor, records_bytes(records))
    return [CallRecord(memory, i * CallRecord.SIZE) for i in range(records)]


class Waiting:
    """What calls of this process wait for, told to whoever shows it.

    Attributes:
        listener: called with the words, and with "" once there is nothing more.
    """

    def __init__(self) -> None:
        self.listener: Callable[[str], None] | None = None
        self._lock = threading.Lock()
        self._texts: dict[int, str] = {}
        self._told = ""

    def note(self, of: object, text: str) -> None:
        """Take what one vector environment waits for; "" if for nothing."""
        with self._lock:
            if text:
                self._texts[id(of)] = text
            elif self._texts.pop(id(of), None) is None:
                return
            newest = next(iter(self._texts.values()), "")
        if newest != self._told:
            self._told = newest
            if self.listener is not None:
                self.listener(newest)

    @property
    def text(self) -> str:
        """The words of the longest wait; "" if there is none."""
        return self._told


WAITING = Waiting()
