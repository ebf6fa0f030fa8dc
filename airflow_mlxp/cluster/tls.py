"""SSL contexts from PEM text or files. Everything here blocks: call it in a thread."""

from __future__ import annotations

import os
import ssl
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_mlxp.errors import AccessError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_mlxp.cluster.credentials import TLS, ClientCertificate


def build_context(tls: TLS, client: ClientCertificate | None) -> ssl.SSLContext:
    """The context for one access; ``client`` is the certificate to show, which a plugin may have issued.

    Raises:
        AccessError: a certificate or key can't be read or doesn't fit.
    """
    context = _with_authorities(tls)
    if tls.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if client is not None:
        _load_client(context, client)
    return context


def modified_at(tls: TLS, client: ClientCertificate | None) -> tuple[int, ...]:
    """Modification times of the files behind a context; a change means that it has to be built anew."""
    files = (tls.ca_file, *((client.certificate_file, client.key_file) if client else ()))
    return tuple(_modified_at(file) for file in files if file)


def _modified_at(file: str) -> int:
    try:
        return Path(file).stat().st_mtime_ns
    except OSError:
        return 0


def _with_authorities(tls: TLS) -> ssl.SSLContext:
    if tls.insecure or not (tls.ca or tls.ca_file):
        return ssl.create_default_context()
    try:
        context = ssl.create_default_context(cafile=None if tls.ca else tls.ca_file, cadata=tls.ca or None)
    except (OSError, ValueError) as error:
        raise AccessError(f"ca: {tls.ca_file or 'the given text'} is no certificate authority in PEM form: {error}") from error
    # As Go's clients do: clusters' own authorities may be intermediates, or lack the fields that Python 3.13 insists on.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _load_client(context: ssl.SSLContext, client: ClientCertificate) -> None:
    try:
        with _as_file(client.certificate, client.certificate_file) as certificate, _as_file(client.key, client.key_file) as key:
            # An empty password makes an encrypted key fail; without one OpenSSL would ask on the terminal.
            context.load_cert_chain(certificate, key or None, password="")
    except (OSError, ValueError) as error:
        where = client.certificate_file or "the given text"
        raise AccessError(
            f"client certificate: {where} and its key can't be used: {error}; is the key encrypted or of another pair?"
        ) from error


@contextmanager
def _as_file(text: str, path: str) -> Iterator[str]:
    """A file with the text for as long as OpenSSL needs it, readable by nobody else: it loads key pairs from files only."""
    if not text:
        yield path
        return
    descriptor, name = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
        yield name
    finally:
        Path(name).unlink()
