"""Mutual TLS for gRPC: peers without a certificate of the same authority are rejected.

The files are the ones of a Kubernetes secret of type `kubernetes.io/tls`, as cert-manager writes
it: `tls.crt`, `tls.key` and `ca.crt`. A client reads them at its next connection, a server at the
next handshake, so that a renewed certificate needs no restart.
"""

from pathlib import Path
from typing import Any

import grpc

from seedbed.runtime.exit_codes import ConfigError, SeedbedError
from seedbed.runtime.private_files import require_private

FILES = ("tls.key", "tls.crt", "ca.crt")


class Tls:
    """Certificate, key and authority in a folder.

    Args:
        folder: holds `FILES`.

    Attributes:
        folder: The folder.

    Raises:
        SeedbedError: CONFIG, a file is missing or is no PEM file, or others may read the key.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._served: tuple[bytes, ...] = ()
        self._read()

    def _read(self) -> tuple[bytes, ...]:
        """Return key, certificate and authority, in PEM."""
        contents = []
        for name in FILES:
            path = self.folder / name
            try:
                if name == "tls.key":
                    require_private(path, path.stat(), f"--tls {self.folder}")
                contents.append(path.read_bytes())
            except OSError as error:
                raise ConfigError(
                    f"--tls {self.folder}: cannot read {path}: {error.strerror}; the folder must "
                    f"hold {', '.join(FILES)} in PEM (docs/several-machines.md makes them)"
                ) from error
            if b"-----BEGIN " not in contents[-1]:
                raise ConfigError(f"--tls: {path} is no PEM file")
        return tuple(contents)

    def of_client(self) -> grpc.ChannelCredentials:
        """Return credentials of the present files."""
        key, certificate, authority = self._read()
        return grpc.ssl_channel_credentials(authority, key, certificate)

    def of_server(self) -> grpc.ServerCredentials:
        """Return credentials that follow the files, and require a certificate of clients."""
        self._served = self._read()
        # The declared type lacks None, which means that nothing has changed.
        renewed: Any = self._renewed
        return grpc.dynamic_ssl_server_credentials(
            self._configuration(), renewed, require_client_authentication=True
        )

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        key, certificate, authority = self._served
        return grpc.ssl_server_certificate_configuration([(key, certificate)], authority)

    def _renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """Return the new configuration, or None if the files have not changed."""
        try:
            found = self._read()
        except SeedbedError:
            # The files are being replaced: the old ones are still valid.
            return None
        if found == self._served:
            return None
        self._served = found
        return self._configuration()
