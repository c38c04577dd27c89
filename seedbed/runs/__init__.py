"""Run directories: locked by one process, resumed, never deleted unasked."""

from seedbed.runtime.exit_codes import ExitCode, SeedbedError


class RunDirectoryError(SeedbedError):
    """Run directory that cannot be used; the message says what else to do."""

    def __init__(self, message: str) -> None:
        super().__init__(ExitCode.RUN_DIRECTORY, message)
