"""A real Airflow of our own on loopback: `airflow standalone` with its ports, user and folders, and its REST API."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

PARTS = ("scheduler", "dag-processor", "api-server", "triggerer")
START_TIMEOUT = 180.0
"""Seconds until every part of Airflow must be healthy; 20 to 35 on two idle cores."""
STOP_TIMEOUT = 6.0
"""Seconds for Airflow to end after SIGINT, before what is left is killed: an idle LocalExecutor worker never ends by itself."""


class StackError(Exception):
    """A part of the stack did not start or stop; the text says which one and what it wrote last."""


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process for certain: pids are used again, a pid with its start time is not."""

    pid: int
    create_time: float

    @classmethod
    def of(cls, pid: int) -> Process:
        """The process that has this pid now."""
        return cls(pid=pid, create_time=psutil.Process(pid).create_time())

    def get(self) -> psutil.Process | None:
        """The process, or None when it has ended."""
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(self.pid)
            if process.create_time() == self.create_time and process.status() != psutil.STATUS_ZOMBIE:
                return process
        return None

    def replaced(self) -> bool:
        """Whether the pid is that of another process by now."""
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self.pid).create_time() != self.create_time
        return False


def free_port(preferred: int) -> int:
    """The preferred port of 127.0.0.1 if nobody listens there on any address, else any free one."""
    for port in (preferred, 0):
        with socket.socket(socket.AF_INET6 if socket.has_ipv6 else socket.AF_INET) as probe:
            with suppress(OSError):
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            with suppress(OSError):
                probe.bind(("", port))
                return int(probe.getsockname()[1])
    raise StackError("no free TCP port on this machine")


@dataclass(frozen=True, kw_only=True)
class Airflow:
    """An Airflow that runs or ran: what is needed to use and to stop it."""

    home: str
    port: int
    password: str
    process: Process

    @property
    def url(self) -> str:
        """Address of the UI and the REST API."""
        return f"http://localhost:{self.port}"

    @property
    def log(self) -> Path:
        """What the parts of Airflow print."""
        return Path(self.home) / "standalone.log"

    @classmethod
    def launch(cls, home: Path, *, dags: Path, env: dict[str, str] | None = None, port: int = 0) -> Airflow:
        """Start `airflow standalone` in a session of its own. Returns at once: see ``ready``.

        ``port`` is used if it is free; 0 takes any.
        """
        home.mkdir(parents=True, exist_ok=True)
        port, password = free_port(port), secrets.token_urlsafe(12)
        passwords = home / "passwords.json"
        with open(os.open(passwords, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            json.dump({"admin": password}, file)
        binaries = Path(sys.executable).parent
        settings = {
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__API__BASE_URL": f"http://localhost:{port}",
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(port),
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API__SECRET_KEY": secrets.token_urlsafe(32),
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_urlsafe(32),
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://localhost:{port}/execution/",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "10",
            "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(free_port(0)),
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(free_port(0)),
            "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_SERVER_PORT": str(free_port(0)),
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
            "PATH": f"{binaries}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        }
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")}
        with (home / "standalone.log").open("wb") as log:
            process = subprocess.Popen(  # Airflow's own command, from this environment
                [str(binaries / "airflow"), "standalone"],
                env=inherited | settings | (env or {}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return cls(home=str(home), port=port, password=password, process=Process.of(process.pid))

    async def answers(self) -> bool:
        """Whether this Airflow runs and its API server answers."""
        if self.process.get() is None:
            return False
        async with httpx.AsyncClient(base_url=self.url, timeout=30) as client:
            return "api-server" not in await _unhealthy(client)

    async def ready(self, report: Callable[[str], None] = lambda _: None) -> None:
        """Wait until every part is healthy, reporting each; StackError names the part that isn't, with the end of its log."""
        end = time.monotonic() + START_TIMEOUT
        waiting: tuple[str, ...] = PARTS
        async with httpx.AsyncClient(base_url=self.url, timeout=10) as client:
            while time.monotonic() < end and self.process.get():
                before, waiting = waiting, await _unhealthy(client)
                for part in before:
                    if part not in waiting:
                        report(f"Airflow's {part} is up")
                if not waiting and await asyncio.to_thread(self._listens):
                    return
                await asyncio.sleep(0.5)
        part = waiting[0] if waiting else "api-server"
        raise StackError(f"Airflow's {part} did not start.\n{self._log_end(part)}")

    def _listens(self) -> bool:
        """Whether the port is ours: another program may have taken it while Airflow started."""
        for process in self._family():
            with suppress(psutil.Error):
                if any(c.laddr.port == self.port for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN):
                    return True
        return False

    def _log_end(self, part: str) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        own = [line for line in lines if line.startswith(part)] or lines
        return "\n".join([*(f"  {line}" for line in own[-25:]), f"The whole log: {self.log}"])

    def runs(self) -> bool:
        """Whether any process of this Airflow is left."""
        return bool(self._family())

    def stop(self) -> None:
        """End this Airflow and everything that it started; nothing else. Does nothing when it has ended."""
        family = self._family()
        if leader := self.process.get():
            leader.send_signal(signal.SIGINT)  # the one signal on which standalone ends its parts
        _, alive = psutil.wait_procs(family, timeout=STOP_TIMEOUT)
        alive += [process for process in self._family() if process not in alive]
        for process in alive:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(alive, timeout=5)

    def _family(self) -> list[psutil.Process]:
        """Every process of the session that ``launch`` opened, also when its leader has ended."""
        if self.process.replaced():
            return []  # the pid, and with it the session's number, belongs to somebody else by now
        family = []
        for process in psutil.process_iter():
            with suppress(OSError, psutil.Error):
                if os.getsid(process.pid) == self.process.pid and process.status() != psutil.STATUS_ZOMBIE:
                    family.append(process)
        return family

    def as_dict(self) -> dict[str, Any]:
        """For the state file."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Airflow:
        """The inverse of ``as_dict``."""
        return cls(**{**data, "process": Process(**data["process"])})


async def _unhealthy(client: httpx.AsyncClient) -> tuple[str, ...]:
    try:
        answer = await client.get("/api/v2/monitor/health")
        health = answer.json()
    except (httpx.HTTPError, ValueError):
        return PARTS
    names = {"scheduler": "scheduler", "dag_processor": "dag-processor", "triggerer": "triggerer"}
    return tuple(part for key, part in names.items() if (health.get(key) or {}).get("status") != "healthy")


class AirflowAPI:
    """What the demo and the tests need of Airflow's REST API."""

    def __init__(self, airflow: Airflow) -> None:
        self._airflow = airflow
        self._client = httpx.AsyncClient(base_url=airflow.url, timeout=30)

    async def __aenter__(self) -> AirflowAPI:
        """Log in."""
        answer = await self._client.post("/auth/token", json={"username": "admin", "password": self._airflow.password})
        answer.raise_for_status()
        self._client.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    def runs(self) -> bool:
        """Whether the Airflow behind this API is alive."""
        return self._airflow.process.get() is not None

    async def call(self, verb: str, path: str, **kwargs: Any) -> Any:
        """One request below /api/v2; HTTP errors raise ``httpx.HTTPStatusError``."""
        answer = await self._client.request(verb, f"/api/v2{path}", **kwargs)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    async def wait_for_dag(self, dag_id: str, *, timeout: float = 60) -> None:
        """Wait until the DAG has been parsed."""
        end = time.monotonic() + timeout
        while True:
            answer = await self._client.get(f"/api/v2/dags/{dag_id}")
            if answer.status_code == 200:
                return
            if time.monotonic() > end:
                errors = (await self.call("GET", "/importErrors"))["import_errors"]
                why = "\n".join(f"{error['filename']}:\n{error['stack_trace']}" for error in errors) or answer.text
                raise StackError(f"DAG {dag_id} was not found within {timeout:.0f} s.\n{why}")
            await asyncio.sleep(0.5)

    async def trigger(self, dag_id: str, conf: dict[str, Any] | None = None) -> str:
        """Start a run; its run id."""
        run = await self.call("POST", f"/dags/{dag_id}/dagRuns", json={"logical_date": None, "conf": conf or {}})
        return str(run["dag_run_id"])

    async def run_state(self, dag_id: str, run_id: str) -> str:
        """``queued``, ``running``, ``success`` or ``failed``."""
        return str((await self.call("GET", f"/dags/{dag_id}/dagRuns/{run_id}"))["state"])

    async def tasks(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """The run's task instances."""
        return list((await self.call("GET", f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances"))["task_instances"])

    async def log(self, dag_id: str, run_id: str, task_id: str, *, try_number: int = 1) -> list[dict[str, Any]]:
        """The task log as it is now: one entry a record, with ``event``, ``timestamp`` and the record's fields.

        Empty for a try that never started, as of a task whose upstream failed.
        """
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/logs/{try_number}"
        entries: list[dict[str, Any]] = []
        token: str | None = None
        while True:
            parameters = {"token": token} if token else {}
            answer = await self._client.get(f"/api/v2{path}", params=parameters, headers={"Accept": "application/json"})
            if answer.status_code == 404:
                return entries
            answer.raise_for_status()
            page = answer.json()
            content = page["content"]
            entries += [entry if isinstance(entry, dict) else {"event": entry} for entry in content]
            token = page.get("continuation_token")
            if not token or not content:
                return entries

    async def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value") -> Any:
        """An XCom's value, or None when there is none."""
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/xcomEntries/{key}"
        answer = await self._client.get(f"/api/v2{path}", params={"deserialize": "false", "stringify": "false"})
        if answer.status_code == 404:
            return None
        answer.raise_for_status()
        return answer.json()["value"]

    async def set_task_state(self, dag_id: str, run_id: str, task_id: str, state: str) -> None:
        """Mark a task instance ``failed``, ``success`` or ``skipped``."""
        await self.call("PATCH", f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}", json={"new_state": state})
