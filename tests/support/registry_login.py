"""A certificate, a password file and a token server for registries of the tests' own."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import bcrypt
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from support.ports import free_port

USER, PASSWORD = "ann", "an-unlikely-password"
FOREIGN = "registry.example"
"""A name that is not this machine's; tests lead it to 127.0.0.1."""


@dataclass(frozen=True)
class Certificate:
    certificate: Path
    key: Path
    private: rsa.RSAPrivateKey = field(repr=False)
    der: bytes = field(repr=False)


def make_certificate(folder: Path) -> Certificate:
    """Make a certificate that signs itself, for 127.0.0.1 and the foreign name."""
    private = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, FOREIGN)])
    now = datetime.datetime.now(datetime.timezone.utc)
    names = [x509.DNSName(FOREIGN), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(private, hashes.SHA256())
    )
    files = (folder / "registry.crt", folder / "registry.pem")
    files[0].write_bytes(made.public_bytes(Encoding.PEM))
    files[1].write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return Certificate(*files, private, made.public_bytes(Encoding.DER))


def write_passwords(file: Path) -> Path:
    """Write the user's password as htpasswd does."""
    hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
    file.write_text(f"{USER}:{hashed}\n")
    return file


def write_docker_login(folder: Path, host: str, password: str = PASSWORD) -> None:
    """Write the login that `docker login` writes."""
    folder.mkdir(exist_ok=True)
    auth = base64.b64encode(f"{USER}:{password}".encode()).decode()
    document = {"auths": {host: {"auth": auth}}, "credsStore": ""}
    (folder / "config.json").write_text(json.dumps(document))


@contextmanager
def token_server(certificate: Certificate, folder: Path) -> Iterator[dict[str, Any]]:
    """Serve tokens to the user; yield the settings of a registry that asks for them."""
    settings = {
        "service": "tests",
        "issuer": "token server of the tests",
        "rootcertbundle": str(certificate.certificate),
    }

    class Tokens(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = parse_qs(urlsplit(self.path).query)
            pair = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
            if self.headers.get("Authorization") != f"Basic {pair}":
                self.send_error(401)
                return
            _, name, actions = asked["scope"][0].split(":")
            access = [{"type": "repository", "name": name, "actions": actions.split(",")}]
            body = json.dumps({"token": _token(certificate, settings, access)}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            with (folder / "tokens").open("a") as log:
                log.write(format % args + "\n")

    server = ThreadingHTTPServer(("127.0.0.1", free_port()), Tokens)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        realm = f"http://127.0.0.1:{server.server_address[1]}/token"
        yield {"auth": {"token": {**settings, "realm": realm}}}
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _token(certificate: Certificate, settings: dict[str, str], access: list[Any]) -> str:
    chain = [base64.b64encode(certificate.der).decode()]
    claims = {
        "iss": settings["issuer"],
        "aud": settings["service"],
        "sub": USER,
        "exp": int(time.time()) + 300,
        "nbf": int(time.time()) - 10,
        "iat": int(time.time()),
        "jti": "1",
        "access": access,
    }
    head = {"typ": "JWT", "alg": "RS256", "x5c": chain}
    signed = ".".join(_base64url(json.dumps(part).encode()) for part in (head, claims))
    signature = certificate.private.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{signed}.{_base64url(signature)}"


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
