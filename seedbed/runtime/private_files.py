"""Files of secrets, which only their process may read."""

import os
from pathlib import Path

from seedbed.runtime.exit_codes import ConfigError


def require_private(path: Path, found: os.stat_result, option: str) -> None:
    """Refuse a file of secrets that other users may read or change.

    A group may have it only where another user owns the file, as with a volume of Kubernetes whose
    `fsGroup` is the process's.

    Args:
        path: The file.
        found: Its status.
        option: The option of the command line that names it.

    Raises:
        ConfigError: The mode of the file lets others in.
    """
    refused = 0o077 if found.st_uid == os.geteuid() else 0o007
    if found.st_mode & refused:
        raise ConfigError(
            f"{option}: {path} has mode {found.st_mode & 0o777:04o}, so that other users of this "
            f"machine may have its secret: `chmod {found.st_mode & 0o777 & ~refused:04o} {path}`, "
            "and make a new secret if they had time to read it"
        )
