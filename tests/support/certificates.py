"""Certificates for TLS on the loopback interface, made anew for each use."""

import ssl
from dataclasses import dataclass, field

import trustme


@dataclass
class Authority:
    """An authority of its own, a server certificate for ``names`` and client certificates on demand."""

    names: tuple[str, ...] = ("127.0.0.1", "localhost")
    ca: trustme.CA = field(default_factory=trustme.CA)

    @property
    def pem(self) -> str:
        return self.ca.cert_pem.bytes().decode()

    def server_context(self, *, client_certificates: bool = False) -> ssl.SSLContext:
        """Context of a server; with ``client_certificates`` it asks for one and refuses those of other authorities."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ca.issue_cert(*self.names).configure_cert(context)
        if client_certificates:
            self.ca.configure_trust(context)
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def client_pair(self, name: str) -> tuple[str, str]:
        """Certificate and key, PEM, of a client whose common name is ``name``."""
        issued = self.ca.issue_cert(f"{name}@example.com", common_name=name)
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        return chain.decode(), issued.private_key_pem.bytes().decode()
