"""Interface of a backend: compiled inference, compiled training, and arrays on the device.

`tensorflow.py` and `jax.py` implement it; only the files of a backend import its library.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from seedbed.backends.coordination import Coordination
from seedbed.backends.roles import SHARED, Split
from seedbed.backends.tables import DeviceTables, TensorDict
from seedbed.backends.trainer import Trainer
from seedbed.types import Params, Tensor


class Backend(Protocol):
    """A library of arrays and compiled functions. A process has one, because Keras has one.

    Attributes:
        name: `learner.backend`.
        tables: class of its tables on the device.
        trainer: class of its trainers.
        split: how many devices of this host act, and how many train.
        coordination: texts that the hosts of a learner share; None of one host.
    """

    coordination: Coordination | None = None
    name: str
    tables: type[DeviceTables]
    trainer: type[Trainer]
    split: Split = SHARED

    def divide(self, split: Split) -> None:
        """Give the devices of this host their roles. Called before anything is on them.

        Args:
            split: how many act, and how many train.

        Raises:
            SeedbedError: BACKEND: this host has fewer devices.
        """

    @property
    def row_parts(self) -> int:
        """Parts of a training batch's rows whose operations are to run at the same time."""
        return 1

    def num_devices(self) -> int:
        """Return how many devices of this host can be given roles."""
        return 1

    def to_acting(self, params: Params) -> list[Params]:
        """Return the parameters on each device that acts, once they are there.

        Args:
            params: as of `Trainer.params`.
        """

    def devices(self) -> list[str]:
        """Return the devices that this process can use, such as `gpu:0`, accelerators first."""

    def memory_bytes(self) -> int:
        """Return the memory of the first device, in bytes; 0 if it is unknown."""

    def uniform(self, seed: int, counter: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Draw float32 in [0, 1) on the device; the same for the same seed and counter.

        Args:
            seed: fixed when the function is compiled.
            counter: [1] int32, on the device.
            shape: the result's.
        """

    def fused(self, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """Return a function of element-wise operations that reads and writes memory once.

        Args:
            function: takes and returns arrays, and is not differentiated.
        """
        return function

    def convolve(self, image: Tensor, kernel: Tensor, stride: int) -> Tensor:
        """Return a valid convolution of bfloat16 arrays, whose sums are float32 to the end.

        Args:
            image: [N, h, w, c] bfloat16.
            kernel: [n, n, c, filters] bfloat16.
            stride: along both axes.
        """

    def transpose(self, x: Tensor, axes: tuple[int, ...]) -> Tensor:
        """Return x with its axes in another order.

        Args:
            x: [N, ..., n].
            axes: as of `keras.ops.transpose`; the first and the last axis stay where they are.
        """

    def to_device(self, batch: Mapping[str, NDArray[Any]]) -> TensorDict:
        """Copy arrays to the device.

        Args:
            batch: arrays [...] by name, which must not be written to afterwards.
        """

    def from_first_host(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the arrays of the first host. All hosts of a learner call this at the same time.

        Args:
            arrays: arrays by name; of the same shapes and dtypes on all hosts.
        """

    def begin_copies(self, arrays: Sequence[Tensor]) -> None:
        """Begin to copy arrays to the host, where they are read soon.

        Args:
            arrays: outputs of a compiled function.
        """

    def is_computed(self, array: Tensor) -> bool:
        """Return whether an output of a compiled function is computed; True if that is unknown."""
        return True

    def keep_compiled(self, folder: Path) -> None:
        """Keep compiled functions in a folder, for the next start; nothing with TensorFlow.

        Args:
            folder: folder of this backend alone, made if need be.
        """

    def profile(self, directory: str) -> AbstractContextManager[None]:
        """Write a TensorBoard profile of what runs inside the context."""
