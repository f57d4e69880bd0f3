"""The certificates of a cluster: an authority, and one certificate for each role.

Every connection is TLS, and both ends show a certificate of the same authority. A client's is good
for no server: who has it can't pose as a scheduler or a worker.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ec import generate_private_key as new_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from edgekit.base.errors import BadInputError, UsageError
from edgekit.base.files import replace_directory, storage_errors
from edgekit.base.options import option
from edgekit.base.paths import config_dir

Role = Literal["scheduler", "worker", "client"]
ROLES: tuple[Role, ...] = get_args(Role)

DAYS = 397
"""The days that a cluster's certificates are valid."""
_AUTHORITY = "ca"
_LARGEST = 100_000
_CLOCKS_DIFFER = datetime.timedelta(minutes=10)


@dataclass(frozen=True)
class Credentials:
    """What one end of a connection shows, and whom it believes: PEM texts."""

    authority: str
    certificate: str
    key: str = field(repr=False)


@dataclass(frozen=True)
class InitReport:
    """The files of a new cluster's certificates."""

    folder: Path
    files: tuple[str, ...]
    valid_until: str


def default_folder() -> Path:
    """Return the folder of the user's own cluster."""
    return config_dir() / "cluster"


def init(folder: Path | None = None, *, again: bool = False) -> InitReport:
    """Make the certificates of a cluster; UsageError if there are some, except `again`."""
    folder = default_folder() if folder is None else folder
    if folder.exists() and not (again and (folder / "ca.crt").is_file()):
        raise UsageError(
            f"{folder} exists already",
            hint=f"{option('again')} makes new certificates, and every end needs the new ones"
            if (folder / "ca.crt").is_file()
            else "name a folder that does not exist",
        )
    made = make_certificates()
    with storage_errors("write the certificates", folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with replace_directory(folder) as new:
            new.chmod(0o700)
            _write(new / f"{_AUTHORITY}.crt", made["client"].authority)
            for role, credentials in made.items():
                _write(new / f"{role}.crt", credentials.certificate)
                _write(new / f"{role}.key", credentials.key)
            files = tuple(sorted(path.name for path in new.iterdir()))
    until = _now() + datetime.timedelta(days=DAYS)
    return InitReport(folder, files, until.date().isoformat())


def read_credentials(role: Role, folder: Path | None = None) -> Credentials:
    """Read the certificate of a role; BadInputError if other users may read its key."""
    folder = default_folder() if folder is None else folder
    texts = []
    for name in (f"{_AUTHORITY}.crt", f"{role}.crt", f"{role}.key"):
        file = folder / name
        if not file.is_file():
            raise UsageError(
                f"there is no certificate {file}",
                hint="`edgekit cluster init` makes a cluster's certificates; copy what this host "
                "needs of them",
            )
        with storage_errors("read the certificate", file), file.open("rb") as stream:
            if name.endswith(".key") and os.fstat(stream.fileno()).st_mode & 0o077:
                raise BadInputError(
                    f"other users may read the private key {file}",
                    hint=f"make it yours alone: chmod 600 {file}",
                )
            texts.append(stream.read(_LARGEST).decode(errors="replace"))
    return checked(Credentials(*texts), str(folder))


def checked(credentials: Credentials, origin: str) -> Credentials:
    """Return the credentials; BadInputError for a certificate that is none, or is over."""
    try:
        certificate = x509.load_pem_x509_certificate(credentials.certificate.encode())
        x509.load_pem_x509_certificate(credentials.authority.encode())
    except ValueError as error:
        raise BadInputError(
            f"{origin} holds no certificates in PEM",
            hint="`edgekit cluster init` makes them",
        ) from error
    if certificate.not_valid_after_utc < _now():
        raise BadInputError(
            f"the certificate in {origin} is over since {certificate.not_valid_after_utc:%Y-%m-%d}",
            hint=f"make new ones, for all ends: edgekit cluster init {option('again')}",
        )
    return credentials


def make_certificates() -> Mapping[Role, Credentials]:
    """Make an authority that forgets its key, and a certificate for each role."""
    authority_key = new_private_key(SECP256R1())
    name = _named("edgekit cluster")
    authority = _signed(
        _begun(name, name, authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True),
        authority_key,
        authority_key,
    )
    return {role: _for_role(role, name, authority, authority_key) for role in ROLES}


def _for_role(
    role: Role, issuer: x509.Name, authority: str, authority_key: EllipticCurvePrivateKey
) -> Credentials:
    key = new_private_key(SECP256R1())
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if role != "client":
        purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
    certificate = _signed(
        _begun(_named(f"edgekit {role}"), issuer, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False),
        key,
        authority_key,
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Credentials(authority, certificate, secret.decode())


def _begun(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = _now()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + datetime.timedelta(days=DAYS))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _signed(
    builder: x509.CertificateBuilder,
    key: EllipticCurvePrivateKey,
    authority_key: EllipticCurvePrivateKey,
) -> str:
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    certificate = builder.add_extension(issuer, critical=False).sign(authority_key, SHA256())
    return certificate.public_bytes(Encoding.PEM).decode()


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)


def _write(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as stream:
        stream.write(text)
