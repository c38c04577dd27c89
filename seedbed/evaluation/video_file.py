"""The file of a video, which is checked before anything is loaded."""

from pathlib import Path

from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.install import how_to_install


def check_video(file: Path) -> None:
    """Check for the extra and the name before the evaluation, not after it.

    Raises:
        SeedbedError: USAGE, the extra is missing, or the name does not end in .mp4.
    """
    try:
        import imageio_ffmpeg  # noqa: F401
    except ImportError as error:
        raise SeedbedError(
            ExitCode.USAGE,
            f"--video needs the extra `video` ({error}): {how_to_install('video')}",
        ) from error
    if file.suffix != ".mp4":
        raise SeedbedError(ExitCode.USAGE, f"--video {file}: the name must end in .mp4")
