"""Rules about the address of an API server and about proxies. Pure apart from reading the environment's proxy variables."""

from __future__ import annotations

import ipaddress
import os
from urllib.parse import urlsplit

from airflow_mlxp.errors import AccessError


def checked(server: str) -> str:
    """The server's URL without a trailing slash; a bare ``host:port`` means https.

    Raises:
        AccessError: empty, or not an http(s) URL, or with a user, query or fragment in it.
    """
    text = server.strip().rstrip("/")
    if not text:
        raise AccessError("server is empty: expected the API server's URL such as https://api.example.com:6443")
    if "://" not in text:
        text = f"https://{text}"
    try:
        parts = urlsplit(text)
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise AccessError(f"server={server!r}: expected a URL such as https://api.example.com:6443")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise AccessError("server: a URL without user, password, query and fragment is expected")
    return text


def check_proxy(proxy_url: str) -> None:
    """Refuse a proxy that the client can't speak to; its password is never shown."""
    if proxy_url and urlsplit(proxy_url).scheme not in {"http", "https"}:
        raise AccessError(
            f"proxy_url: expected http:// or https://, got {urlsplit(proxy_url).scheme or 'no'} scheme; SOCKS is not supported"
        )


def may_carry_credentials(server: str) -> bool:
    """Whether secrets may go to this server: over TLS to any, in plain text only over the loopback interface."""
    parts = urlsplit(server)
    return parts.scheme == "https" or _is_loopback(parts.hostname or "")


def proxy_for(server: str, proxy_url: str = "") -> str:
    """The proxy for a server: the one given, else the environment's, as Go's ``ProxyFromEnvironment``; empty for none."""
    if proxy_url:
        return proxy_url
    parts = urlsplit(server)
    host = (parts.hostname or "").lower()
    name = f"{parts.scheme}_proxy"
    proxy = os.environ.get(name) or os.environ.get(name.upper(), "")
    if not proxy or _is_loopback(host) or _is_excluded(host, os.environ.get("no_proxy") or os.environ.get("NO_PROXY", "")):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_excluded(host: str, no_proxy: str) -> bool:
    rules = [rule.strip().lower() for rule in no_proxy.split(",") if rule.strip()]
    return any(rule == "*" or _matches(host, rule) for rule in rules)


def _matches(host: str, rule: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(rule, strict=False)
    except ValueError:
        domain = rule.split(":", maxsplit=1)[0].removeprefix("*").lstrip(".")
        return host.endswith(f".{domain}") or (host == domain and not rule.startswith((".", "*")))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
