"""What the functions of `seedbed` refuse, and Keras that is imported before them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import seedbed
from seedbed.runtime.exit_codes import SeedbedError
from tests.support.source_imports import ROOT


def test_no_environments_are_refused() -> None:
    with pytest.raises(SeedbedError, match="num_envs 0: it takes 1 to 4096"):
        seedbed.make_env("CartPole-v1", num_envs=0)


@pytest.mark.slow
@pytest.mark.backends
def test_the_backend_that_keras_has_already_is_taken() -> None:
    """Keras may come first, and without KERAS_BACKEND: then its default is the backend."""
    code = (
        "import keras\n"
        "from seedbed import backends\n"
        "name = keras.backend.backend()\n"
        "assert backends.use(name).name == name\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "KERAS_BACKEND"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
