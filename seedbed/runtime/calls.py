"""Calls into environments: which one has not come back, and since when.

A call is kept in memory that other processes map, so that whoever waits can name it. A guard ends
its process where no thread of the process can: where the call holds the interpreter lock.
"""

import mmap
import os
import struct
import threading
from collections.abc import Callable
from typing import NamedTuple

from seedbed.runtime.clock import monotonic

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
# Of what a watchdog has first, before the guard acts: the notice, and the end.
GRACE_S = 5.0
# The descriptor of the memory that the process above has made for a guarded process.
VARIABLE = "SEEDBED_CALLS"
# Kind, environment, monotonic seconds, which are those of the machine.
_RECORD = struct.Struct("=qqd")
# Seconds of the last look of a watchdog, the limit (0: none), `environment.id` in UTF-8.
_HEADER = struct.Struct("=dd256s")


class Call(NamedTuple):
    """A call that has not come back.

    Attributes:
        kind: one of the numbers above.
        environment: its number; `ALL` of several.
        since: `monotonic` at its begin.
    """

    kind: int
    environment: int
    since: float

    @property
    def busy_s(self) -> float:
        """Seconds since its begin."""
        return monotonic() - self.since

    def named(self, name: str) -> str:
        """Return the call in words, such as `reset of environment 3 of CartPole-v1`."""
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
        _RECORD.pack_into(self._memory, self._offset, kind, environment, monotonic())

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
        """`monotonic` at the newest begin or end of a call."""
        return self._read().since

    def _read(self) -> Call:
        return Call._make(_RECORD.unpack_from(self._memory, self._offset))


class ProcessCalls:
    """The calls of one process, which it shares with its guard and the process above.

    Args:
        descriptor: of `shared_memory()`, which stays open; None: of this process and its children.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self._memory = mmap.mmap(-1 if descriptor is None else descriptor, mmap.PAGESIZE)
        offsets = range(_HEADER.size, mmap.PAGESIZE - CallRecord.SIZE, CallRecord.SIZE)
        self._records = [CallRecord(self._memory, offset) for offset in offsets]
        self._free = self._records.copy()

    def record(self) -> CallRecord:
        """Return a record that nothing else uses; one that is not shared where none is left."""
        return self._free.pop(0) if self._free else CallRecord()

    def release(self, record: CallRecord) -> None:
        """End the call of a record of `record`, and take it back; a second time does nothing."""
        record.end()
        if record in self._records and record not in self._free:
            self._free.append(record)

    def watch(self, name: str, limit_s: float) -> None:
        """Note that a watchdog of this process looks now.

        Args:
            name: the `environment.id`.
            limit_s: longest time of a call; 0: no end.
        """
        text = name.encode()[:256].decode(errors="ignore").encode()
        _HEADER.pack_into(self._memory, 0, monotonic(), limit_s, text)

    def end(self) -> None:
        """Note that there is no call: the process has ended."""
        for record in self._records:
            record.end()

    def put_off(self, seconds: float) -> None:
        """Leave out the time in which the process was stopped."""
        for record in self._records:
            if (call := record.call) is not None:
                record.copy(call._replace(since=call.since + seconds))

    @property
    def longest(self) -> Call | None:
        """The call that takes longest; None if there is none."""
        calls = [call for record in self._records if (call := record.call) is not None]
        return min(calls, key=lambda call: call.since, default=None)

    def during(self) -> str:
        """Return the call that takes longest, as the end of a sentence; "" if there is none."""
        call = self.longest
        return f" during {call.named(self._name)}" if call is not None else ""

    @property
    def _name(self) -> str:
        text: bytes = _HEADER.unpack_from(self._memory)[2]
        return text.rstrip(b"\0").decode()

    def unwatched(self) -> tuple[str, str]:
        """Return what the process waits for while none of its threads runs, and its late call.

        Both in words, and "" where the process can tell it itself, or nothing takes long.
        """
        looked, limit_s, _ = _HEADER.unpack_from(self._memory)
        call = self.longest
        if call is None or not looked or monotonic() - looked < GRACE_S:
            return "", ""
        late = limit_s and call.busy_s > limit_s + GRACE_S
        return call.waited_for(self._name), call.late(self._name, limit_s) if late else ""


# Of this process. A guarded one has taken over what its guard reads.
PROCESS = ProcessCalls()


def take_over() -> None:
    """Share the calls of this process, in memory of the process above where it has made some."""
    global PROCESS
    descriptor = os.environ.pop(VARIABLE, None)
    if descriptor is not None:
        PROCESS = ProcessCalls(int(descriptor))
        os.close(int(descriptor))


def shared_memory(size: int = mmap.PAGESIZE) -> int:
    """Return a descriptor of memory of no file system.

    Args:
        size: bytes.
    """
    descriptor = os.memfd_create("seedbed-calls")
    os.posix_fallocate(descriptor, 0, size)
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
