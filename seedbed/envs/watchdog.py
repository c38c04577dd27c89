"""Watchdog: a limit for calls into environments, which may never return.

`AtariVectorEnv.recv()` waits without end after one of its workers has failed, and a user's
environment may hang. No exception can interrupt such a call, so the watchdog ends the process. Its
supervisor (Kubernetes, `seedbed train`) starts it again.
"""

import logging
import math
import os
import sys
import threading
from collections.abc import Callable

from seedbed.config.environment import Actor
from seedbed.runtime import calls
from seedbed.runtime.calls import WAITING, Call, CallRecord
from seedbed.runtime.exit_codes import HELP, ExitCode
from seedbed.runtime.guard import leaving

log = logging.getLogger(__name__)

DEFAULT_S: float = Actor.model_fields["environment_timeout_s"].default


def _end_process(text: str, call: Call) -> ExitCode:
    code = ExitCode.ENVIRONMENT
    print(
        f"seedbed: {text}\nseedbed: exit code {code:d} ({code.name}): {HELP[code]}",
        file=sys.stderr,
        flush=True,
    )
    return code


# Called with the sentence of a late call. The process then ends with the code that it returns;
# None: the call is left behind, and nothing waits for it.
on_late: Callable[[str, Call], ExitCode | None] = _end_process


class Watchdog:
    """Ends the process if a call takes longer than a limit, and tells of it before.

    One thread per watchdog looks four times per limit, at most once a second. A call costs two
    writes of 24 bytes. Where it never releases the interpreter lock, the guard acts instead.

    Args:
        name: the `environment.id`.
        timeout_s: longest time of a call; 0: no end.
        record: the call of the vector environment.
    """

    def __init__(self, name: str, timeout_s: float, record: CallRecord) -> None:
        self._name = name
        self._limit_s = timeout_s
        self._timeout_s = timeout_s or math.inf
        self._record = record
        self._closed = threading.Event()
        calls.PROCESS.watch(name, timeout_s)
        self._thread = threading.Thread(target=self._watch, name=f"watchdog {name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()
        self._thread.join()
        WAITING.note(self, "")

    def _watch(self) -> None:
        told = None
        while not self._closed.wait(min(1.0, self._timeout_s / 4)):
            calls.PROCESS.watch(self._name, self._limit_s)
            call = self._record.call
            text = "" if call is None else call.waited_for(self._name)
            WAITING.note(self, text)
            if text and call != told:
                log.warning("%s", text)
                told = call
            if call is not None and call.busy_s > self._timeout_s:
                code = on_late(call.late(self._name, self._timeout_s), call)
                if code is None:
                    calls.PROCESS.release(self._record)
                    return
                # os._exit, because an ordinary exit would wait for the thread that hangs.
                leaving()
                os._exit(code)
