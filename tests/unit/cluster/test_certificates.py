"""A cluster's certificates: who may be what, and what is refused."""

from __future__ import annotations

import ssl
from datetime import timedelta
from pathlib import Path

import pytest

from edgekit.base.errors import BadInputError, UsageError
from edgekit.cluster import certificates
from edgekit.cluster.certificates import Credentials, init, make_certificates, read_credentials


def _context(side: ssl.Purpose, credentials: Credentials, folder: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(side, cadata=credentials.authority)
    context.check_hostname, context.verify_mode = False, ssl.CERT_REQUIRED
    pem = folder / f"{side.shortname}.pem"
    pem.write_text(credentials.certificate + credentials.key)
    context.load_cert_chain(pem)
    return context


def _shake_hands(server: Credentials, client: Credentials, folder: Path) -> None:
    """Make a TLS connection in memory, as Dask's settings make one."""
    ends = []
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    accepts = _context(ssl.Purpose.CLIENT_AUTH, server, folder)
    asks = _context(ssl.Purpose.SERVER_AUTH, client, folder)
    ends.append(asks.wrap_bio(to_client, to_server))
    ends.append(accepts.wrap_bio(to_server, to_client, server_side=True))
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue


def test_all_roles_work_together(tmp_path: Path) -> None:
    made = make_certificates()

    _shake_hands(made["scheduler"], made["client"], tmp_path)
    _shake_hands(made["scheduler"], made["worker"], tmp_path)
    _shake_hands(made["worker"], made["scheduler"], tmp_path)


def test_a_client_can_not_pose_as_a_server(tmp_path: Path) -> None:
    made = make_certificates()

    with pytest.raises(ssl.SSLCertVerificationError):
        _shake_hands(made["client"], made["worker"], tmp_path)


def test_another_cluster_is_refused(tmp_path: Path) -> None:
    made, other = make_certificates(), make_certificates()

    with pytest.raises(ssl.SSLCertVerificationError):
        _shake_hands(made["scheduler"], other["client"], tmp_path)


def test_files_are_their_users_own(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    init(folder)

    assert {path.stat().st_mode & 0o077 for path in (folder, *folder.iterdir())} == {0}
    assert not list(folder.glob("ca.key"))
    (folder / "client.key").chmod(0o644)
    with pytest.raises(BadInputError, match="other users may read"):
        read_credentials("client", folder)
    read_credentials("worker", folder)


def test_certificates_are_replaced_only_on_request(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    init(folder)
    before = read_credentials("client", folder)

    with pytest.raises(UsageError, match="exists already"):
        init(folder)
    assert read_credentials("client", folder) == before
    init(folder, again=True)
    assert read_credentials("client", folder) != before


def test_a_folder_of_something_else_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")

    with pytest.raises(UsageError, match="exists already"):
        init(tmp_path, again=True)
    assert (tmp_path / "mine").read_text() == "precious"


def test_old_and_damaged_certificates_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cluster"
    with monkeypatch.context() as earlier:
        now = certificates._now()
        earlier.setattr(certificates, "_now", lambda: now - timedelta(days=400))
        init(folder)
    with pytest.raises(BadInputError, match="is over since"):
        read_credentials("client", folder)
    (folder / "client.crt").write_text("no certificate")
    with pytest.raises(BadInputError, match="no certificates in PEM"):
        read_credentials("client", folder)
    (folder / "client.crt").unlink()
    with pytest.raises(UsageError, match="there is no certificate"):
        read_credentials("client", folder)
