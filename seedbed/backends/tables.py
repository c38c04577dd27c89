"""Arrays that stay on the device, and functions that are compiled on them."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from numpy.typing import NDArray

from seedbed.spec import ArraySpec
from seedbed.types import Params, Tensor

TensorDict = dict[str, Tensor]
# From parameters, slots and inputs to outputs.
InferenceFunction = Callable[[Params, Tensor, TensorDict], TensorDict]


class Tables(Protocol):
    """Arrays that stay on the device. Compiled functions change them in place."""

    def take(self, name: str, index: Tensor) -> Tensor:
        """Return rows of a table."""

    def put(self, name: str, index: Tensor, rows: Tensor) -> None:
        """Replace rows of a table. Where an index occurs twice, either row stays.

        Args:
            name: the table.
            index: [N] integers.
            rows: [N, ...].
        """


class DeviceTables(Protocol):
    """Tables, zero at first. One thread calls the functions that are compiled on them.

    Args:
        specs: of each table, by name, the number of rows and the spec of one.
        acting: number of the device that acts, from 0, with the tables; None is the first one that
            trains.
    """

    def __init__(
        self, specs: Mapping[str, tuple[int, ArraySpec]], acting: int | None = None
    ) -> None: ...

    def compile(
        self, function: Callable[..., Any], donated: tuple[int, ...] = ()
    ) -> Callable[..., Any]:
        """Compile `function(tables, *arrays) -> outputs`, which may change the tables.

        Args:
            function: the function.
            donated: indices of the arrays that are not used after a call, whose memory the outputs
                may take.

        Returns:
            A function from the arrays to the outputs on the device.
        """

    def compile_inference(self, function: Callable[..., TensorDict]) -> InferenceFunction:
        """Compile `function(tables, params, slots, inputs) -> outputs` once, for any N.

        Returns:
            A function from the parameters that act, from `slots` [N] int32 and from arrays
            [N, ...] to the outputs on the device.
        """
        return self.compile(function)

    def read(self) -> dict[str, NDArray[Any]]:
        """Return all tables, on the host."""
