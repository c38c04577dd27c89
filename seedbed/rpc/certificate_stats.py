"""End of the certificate that a process presents, for an alarm before it."""

import base64
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from seedbed.runtime.metrics import Metric, documented, gauge

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END", re.DOTALL)
_EXPLICIT_VERSION, _UTC_TIME = 0xA0, 0x17


class CertificateStats:
    """The certificate of a process.

    Attributes:
        expiry: End of the certificate of `--tls`, in Unix time. NaN of an unreadable file.
        lifetime: Seconds from the begin to the end of the certificate of `--tls`. NaN of an
            unreadable file.
    """

    METRICS: ClassVar[tuple[Metric, ...]] = documented(
        __doc__,
        gauge("seedbed_certificate_expiry_timestamp_seconds", "expiry"),
        gauge("seedbed_certificate_lifetime_seconds", "lifetime"),
    )

    def __init__(self, folder: Path) -> None:
        """Name the file.

        Args:
            folder: Folder with `tls.crt`, which is read at each scrape: it may be renewed.
        """
        self._file = folder / "tls.crt"

    @property
    def expiry(self) -> float | None:
        """Return the end in Unix time; None where the file holds no whole certificate."""
        validity = self._validity()
        return validity[1].timestamp() if validity else None

    @property
    def lifetime(self) -> float | None:
        """Return the seconds from begin to end; None where there is no whole certificate."""
        validity = self._validity()
        return (validity[1] - validity[0]).total_seconds() if validity else None

    def _validity(self) -> tuple[datetime, datetime] | None:
        try:
            found = _PEM.search(self._file.read_bytes())
            return read_validity(base64.b64decode(found[1])) if found else None
        except (OSError, ValueError, IndexError):
            return None


def read_validity(der: bytes) -> tuple[datetime, datetime]:
    """Read begin and end of an X.509 certificate (RFC 5280, section 4.1).

    Args:
        der: The certificate in DER; its first level is `tbsCertificate`, in which the validity is
            the fourth field, or the fifth after an explicit version.

    Raises:
        ValueError: The bytes are no certificate.
        IndexError: The bytes end too early.
    """
    fields = _elements(_elements(_elements(der)[0][1])[0][1])
    _, validity = fields[4 if fields[0][0] == _EXPLICIT_VERSION else 3]
    begin, end = (_time(*element) for element in _elements(validity))
    return begin, end


def _elements(der: bytes) -> list[tuple[int, bytes]]:
    """Return tag and content of each element of a DER sequence's content."""
    elements, at = [], 0
    while at < len(der):
        tag, length, at = der[at], der[at + 1], at + 2
        if length & 0x80:
            size = length & 0x7F
            length, at = int.from_bytes(der[at : at + size], "big"), at + size
        if at + length > len(der):
            raise ValueError(f"an element of {length} bytes, and {len(der) - at} are left")
        elements.append((tag, der[at : at + length]))
        at += length
    return elements


def _time(tag: int, text: bytes) -> datetime:
    digits = text.decode("ascii")
    if tag == _UTC_TIME:  # two digits of the year, from 1950 to 2049
        digits = ("19" if digits >= "50" else "20") + digits
    return datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
