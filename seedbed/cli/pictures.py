"""Files of pictures and their points, as commands write them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.install import how_to_install
from seedbed.runtime.shortage import cannot_write

_FORMATS = (".png", ".svg", ".pdf")


def check_picture(file: Path) -> None:
    """Refuse a name that is not that of a picture.

    Raises:
        SeedbedError: USAGE.
    """
    if file.suffix.lower() not in _FORMATS:
        text = f"cannot write the picture {file}: its name must end in {', '.join(_FORMATS)}"
        raise SeedbedError(ExitCode.USAGE, text)


@contextmanager
def writing(file: Path) -> Iterator[None]:
    """Tell what is missing where a picture, or its points, cannot be written.

    Raises:
        SeedbedError: USAGE, matplotlib or SciPy is not there; OUTPUT, the file cannot be written.
    """
    try:
        yield
    except ImportError as error:
        text = f"plots need matplotlib and SciPy: {how_to_install('plots')}"
        raise SeedbedError(ExitCode.USAGE, text) from error
    except OSError as error:
        raise cannot_write(file, error) from error
