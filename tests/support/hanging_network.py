"""A network that is never built."""

from __future__ import annotations

import sys
import threading

import keras


class Hangs(keras.layers.Layer):
    def __init__(self) -> None:
        super().__init__()
        print("the build hangs", file=sys.stderr, flush=True)
        threading.Event().wait()
