"""A certificate authority for one server, and the server's certificate for loopback."""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALID_FOR = dt.timedelta(days=365)
_SKEW = dt.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority that lives as long as the object."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def new(cls) -> Authority:
        """A new key and self-signed certificate."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("airflow-mlxp local CA")
        builder = _builder(name, name, key).add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = builder.add_extension(usage, critical=True).add_extension(identifier, critical=False)
        return cls(key, builder.sign(key, hashes.SHA256()))

    @property
    def pem(self) -> str:
        """The certificate in PEM form."""
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def server_context(self, host: str) -> ssl.SSLContext:
        """A TLS context of a server on ``host`` with a certificate of this authority."""
        names: list[x509.GeneralName] = [x509.DNSName(name) for name in ("localhost", "kubernetes", "kubernetes.default.svc")]
        addresses = {ipaddress.ip_address(address) for address in ("127.0.0.1", "::1", host)}
        names += [x509.IPAddress(address) for address in sorted(addresses, key=str)]
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._certify(context, "airflow-mlxp local API server", usage, x509.SubjectAlternativeName(names))
        return context

    def kubelet_client_context(self) -> ssl.SSLContext:
        """A TLS context for calls to kubelets: proves who calls (``--kubelet-client-certificate``), trusts whoever answers."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self._certify(context, "kube-apiserver-kubelet-client", x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]))
        return context

    def _certify(self, context: ssl.SSLContext, name: str, *extensions: x509.ExtensionType) -> None:
        """Give a context a new key and a certificate of this authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = _builder(_name(name), self.certificate.subject, key)
        for extension in (*extensions, authority):
            builder = builder.add_extension(extension, critical=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        _load(context, key, builder.sign(self.key, hashes.SHA256()))


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _VALID_FOR)
    )


def _load(context: ssl.SSLContext, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
    """Python reads keys from files only: the file is private and exists for this moment."""
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "server.pem")
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            file.write(secret + certificate.public_bytes(serialization.Encoding.PEM))
        context.load_cert_chain(path)
