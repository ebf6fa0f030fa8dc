"""Service names become loopback addresses: there is no cluster DNS and all pods share the ports of one machine."""

from __future__ import annotations

import random
import re
import socket
from typing import TYPE_CHECKING

from airflow_mlxp.local.client import SERVICES

if TYPE_CHECKING:
    from airflow_mlxp.local.client import Client, Object

JOB_LABEL = "training.kubeflow.org/job-name"
LOOPBACK = "127.0.0.1"

_PORTS = range(20000, 32000)
"""Below the range that the system hands out to clients, so that none of them takes the port before its server starts."""

_HOST_SUFFIXES = ("_ADDR", "_HOST")


class PortTable:
    """One free port of this machine for each service name and port, the same for every pod that asks."""

    def __init__(self) -> None:
        self._ports: dict[tuple[str, str, int], int] = {}
        self._random = random.SystemRandom()

    def port(self, namespace: str, host: str, port: int) -> int:
        """The port on 127.0.0.1 that stands for ``host:port``."""
        key = (namespace, host, port)
        if key not in self._ports:
            self._ports[key] = self._free_port()
        return self._ports[key]

    def forget(self, namespace: str, job: str) -> None:
        """Give up the ports of a training job that is gone."""
        gone = [
            key for key in self._ports if key[0] == namespace and re.fullmatch(rf"{re.escape(job)}-(master|worker)-\d+", key[1])
        ]
        for key in gone:
            del self._ports[key]

    def _free_port(self) -> int:
        while True:
            port = self._random.choice(_PORTS)
            if port not in self._ports.values() and _can_bind(port):
                return port


class NameMap:
    """The service names that one pod may use, and what they become."""

    def __init__(self, pod: Object, services: list[str], ports: PortTable) -> None:
        self._namespace, self._ports = pod["metadata"]["namespace"], ports
        names = [re.escape(name) for name in services]
        job = (pod["metadata"].get("labels") or {}).get(JOB_LABEL)
        if job is not None:
            # The operator creates a replica's pod before its service: these names are known without asking.
            names.insert(0, rf"{re.escape(job)}-(?:master|worker)-\d+")
        if names:
            domain = rf"(?:\.{re.escape(self._namespace)}(?:\.svc(?:\.cluster\.local)?)?)?"
            host = rf"(?P<host>(?:[a-z0-9-]+\.)?(?:{'|'.join(names)})){domain}"
            self._alone: re.Pattern[str] | None = re.compile(host)
            self._with_port = re.compile(rf"(?<![\w.-]){host}:(?P<port>\d+)(?![\w.-])")
        else:
            self._alone = None

    @classmethod
    async def of(cls, client: Client, pod: Object, ports: PortTable) -> NameMap:
        """The names of the pod's training job and of the services in its namespace."""
        answer = await client.list(SERVICES, pod["metadata"]["namespace"])
        return cls(pod, [item["metadata"]["name"] for item in answer["items"]], ports)

    def translate(self, text: str) -> str:
        """The text with each ``name:port`` replaced; a name alone only when it is the whole text."""
        if self._alone is not None and self._alone.fullmatch(text):
            return LOOPBACK
        return self.translate_ports(text)

    def translate_ports(self, text: str) -> str:
        """The text with each ``name:port`` replaced, and no name alone."""
        return self._with_port.sub(self._replace, text) if self._alone is not None else text

    def translate_environment(self, env: dict[str, str]) -> dict[str, str]:
        """Translate ``name:port`` in all values, and a name alone where the variable is an address.

        ``X_PORT`` follows when ``X_ADDR`` or ``X_HOST`` is a service name (MASTER_ADDR, MASTER_PORT). A pod bears the name of its
        service, so that other variables that hold such a name mean the pod.
        """
        result = {key: self.translate_ports(value) for key, value in env.items()}
        for key, value in env.items():
            suffix = next((suffix for suffix in _HOST_SUFFIXES if key.endswith(suffix)), None)
            match = self._alone.fullmatch(value) if self._alone is not None and suffix else None
            if suffix is None or match is None:
                continue
            result[key] = LOOPBACK
            port_key = f"{key.removesuffix(suffix)}_PORT"
            if env.get(port_key, "").isdigit():
                result[port_key] = str(self._ports.port(self._namespace, match["host"], int(env[port_key])))
        return result

    def _replace(self, match: re.Match[str]) -> str:
        return f"{LOOPBACK}:{self._ports.port(self._namespace, match['host'], int(match['port']))}"


def _can_bind(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as candidate:
        try:
            candidate.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
