"""mTLS on gRPC: who has no certificate of the same authority gets no answer.

Files are those of a Kubernetes secret of type `kubernetes.io/tls`, as cert-manager writes it:
`tls.crt`, `tls.key` and `ca.crt`. They are read again when they change: by a client at its next
connection, by a server at the next handshake, so that a renewed certificate restarts nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc

from seedbed.runtime.exit_codes import ExitCode, SeedbedError

FILES = ("tls.key", "tls.crt", "ca.crt")


class Tls:
    """The certificate, key and authority in a folder.

    Raises:
        SeedbedError: CONFIG, when a file is missing or is no PEM.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._served: tuple[bytes, ...] = ()
        self._read()

    def _read(self) -> tuple[bytes, ...]:
        """Key, certificate and authority, PEM."""
        contents = []
        for name in FILES:
            path = self._folder / name
            try:
                contents.append(path.read_bytes())
            except OSError as error:
                raise SeedbedError(
                    ExitCode.CONFIG, f"--tls: cannot read {path}: {error.strerror}"
                ) from error
            if b"-----BEGIN " not in contents[-1]:
                raise SeedbedError(ExitCode.CONFIG, f"--tls: {path} is no PEM file")
        return tuple(contents)

    def of_client(self) -> grpc.ChannelCredentials:
        """Credentials of the files as they are now."""
        key, certificate, authority = self._read()
        return grpc.ssl_channel_credentials(authority, key, certificate)

    def of_server(self) -> grpc.ServerCredentials:
        """Credentials that follow the files. Clients must have a certificate of the authority."""
        self._served = self._read()
        renewed: Any = self._renewed  # its type has no None, which means "as before"
        return grpc.dynamic_ssl_server_credentials(
            self._configuration(), renewed, require_client_authentication=True
        )

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        key, certificate, authority = self._served
        return grpc.ssl_server_certificate_configuration([(key, certificate)], authority)

    def _renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """At each handshake: the new files, or None where nothing has changed."""
        try:
            found = self._read()
        except SeedbedError:
            return None  # half way through being replaced: the old ones are still good
        if found == self._served:
            return None
        self._served = found
        return self._configuration()
