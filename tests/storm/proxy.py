"""A TCP proxy that cuts, delays, holds and truncates connections."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections import Counter

SEGMENT = 16 * 1024
LONGEST_DELAY_S = 0.05
LONGEST_HOLD_S = 1.0


class StormyProxy:
    """Proxy in front of `host:port` or `unix:PATH`.

    One segment in `every` has a fate: `cut` ends both directions, `truncate` passes a part of the
    segment and then ends them, `delay` lets it wait for moments, and `hold` for so long that
    segments of other connections, sent later, arrive first.

    Attributes:
        address: where clients connect.
        fates: how often each fate has come.
    """

    def __init__(self, target: str, seed: int, every: int = 2000) -> None:
        self._target, self._every = target, every
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self.fates: Counter[str] = Counter()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _connect(self) -> socket.socket:
        if self._target.startswith("unix:"):
            far = socket.socket(socket.AF_UNIX)
            far.connect(self._target.removeprefix("unix:"))
            return far
        host, port = self._target.rsplit(":", 1)
        return socket.create_connection((host, int(port)))

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    far = self._connect()
                except OSError:
                    near.close()  # nothing listens now
                    continue
                with self._lock:
                    self._sockets = [one for one in self._sockets if one.fileno() >= 0]
                    self._sockets += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _fate(self) -> tuple[str, float]:
        with self._lock:
            if self._chance.randrange(self._every):
                return "", 0.0
            fate = self._chance.choice(("cut", "truncate", "delay", "delay", "hold"))
            self.fates[fate] += 1
            return fate, self._chance.random()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(SEGMENT):
                fate, share = self._fate()
                if fate in ("delay", "hold"):
                    time.sleep(share * (LONGEST_HOLD_S if fate == "hold" else LONGEST_DELAY_S))
                elif fate == "truncate":
                    sink.sendall(data[: int(share * len(data))])
                if fate in ("cut", "truncate"):
                    break
                sink.sendall(data)
        for one in (source, sink):  # wakes the other direction
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def close(self) -> None:
        self._listener.close()
        with self._lock:
            for one in self._sockets:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()
