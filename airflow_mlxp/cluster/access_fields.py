"""Checks of single values of an access, each refusal one sentence that names the field."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_mlxp.cluster.credentials import Anonymous, Basic, Token, TokenFile
from airflow_mlxp.errors import AccessError

if TYPE_CHECKING:
    from airflow_mlxp.cluster.credentials import ClientCertificate


def credential(token: str, token_file: str, username: str, password: str) -> Anonymous | Token | TokenFile | Basic:
    """The credential that these values make; a token file wins over a token, as in client-go."""
    if (username or password) and (token or token_file):
        raise AccessError("a token and a username or password are given; Kubernetes takes one of them, remove the other")
    if token_file:
        return TokenFile(path=existing_file("token file", token_file))
    if token:
        check_header(token.strip(), "token")
        return Token(token=token.strip())
    if username or password:
        return Basic(username=username, password=password)
    return Anonymous()


def check_pair(client: ClientCertificate, certificate: str, key: str) -> None:
    """Refuse half of a key pair; ``certificate`` and ``key`` are the names of the two fields."""
    if not (client.certificate or client.certificate_file):
        raise AccessError(f"{key} is given without {certificate}")
    if not (client.key or client.key_file) and "PRIVATE KEY" not in client.certificate and not client.certificate_file:
        raise AccessError(f"{certificate} is given without {key}")


def existing_file(what: str, path: str) -> str:
    """The path of a file that exists, or empty; ``what`` names the field."""
    if path and not Path(path).is_file():
        raise AccessError(f"{what}: file {path} does not exist")
    return path


def pem(what: str, text: str) -> str:
    """PEM text, given as such or in base64; ``what`` names the field."""
    if not text or "-----BEGIN" in text:
        return text
    try:
        decoded = base64.b64decode("".join(text.split()), validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        decoded = ""
    if "-----BEGIN" not in decoded:
        raise AccessError(f"{what}: expected PEM text or base64 of it")
    return decoded


def check_header(value: str, what: str) -> None:
    """Refuse what no HTTP header may hold; ``what`` names the field, the value itself is not shown."""
    if any(not 32 <= ord(character) < 127 for character in value):
        raise AccessError(f"{what}: holds a character that no HTTP header may hold; was it cut or copied with a line break?")
