"""A certificate for one cluster: Dask accepts work only from holders of its key, and encrypts its traffic.

The key stays in the memory of the cluster's processes. Nothing has to be removed at the end, however the cluster ends.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field

#: Bytes of a certificate and its key as text, with spaces at the end.
SECRET_BYTES = 4096

#: How long a certificate is valid. It begins earlier than it is made, because the clocks of machines differ.
_BEFORE, _AFTER = dt.timedelta(days=1), dt.timedelta(days=365)

_NAME = "gnnloom"

#: Follows the certificate, which is ASCII text without it.
_END = "\0"


@dataclass(frozen=True)
class Certificate:
    """A self-signed certificate and its private key, both in PEM format."""

    text: str
    key: str = field(repr=False)

    def to_bytes(self) -> bytes:
        """The certificate and its key as ``SECRET_BYTES`` bytes."""
        return f"{self.text}{_END}{self.key}{_END}".encode("ascii").ljust(SECRET_BYTES)

    @classmethod
    def from_bytes(cls, content: bytes) -> Certificate:
        """Read what :meth:`to_bytes` made."""
        text, key, _ = content.decode("ascii").split(_END)
        return cls(text, key)

    def settings(self) -> dict[str, str | bool]:
        """Dask's settings that make a process's schedulers, workers and clients talk only to holders of the key."""
        settings: dict[str, str | bool] = {
            "distributed.comm.require-encryption": True,
            "distributed.comm.tls.ca-file": self.text,
        }
        for role in ("scheduler", "worker", "client"):
            settings[f"distributed.comm.tls.{role}.cert"] = self.text
            settings[f"distributed.comm.tls.{role}.key"] = self.key
        return settings


def make_certificate() -> Certificate:
    """Make a certificate with a new private key.

    It is like the certificate of ``distributed.Security.temporary``, except that machines whose clocks are behind
    accept it, too.
    """
    from cryptography import x509  # noqa: PLC0415 - takes a tenth of a second to import
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, _NAME)])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now - _BEFORE, now + _AFTER)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(_NAME)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Certificate(certificate.public_bytes(serialization.Encoding.PEM).decode(), private.decode())
