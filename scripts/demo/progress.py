"""The demo's progress display: each task with its state, the phase and replicas of its workload, and its last log line."""

from __future__ import annotations

import asyncio
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import httpx
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text
from standalone import AirflowAPI

from airflow_mlxp import workloads
from airflow_mlxp.cluster import access
from airflow_mlxp.cluster.rest import Client
from airflow_mlxp.errors import MLXPError
from airflow_mlxp.workloads.base import PODS

COLOURS = {"success": "green", "failed": "red", "skipped": "magenta", "deferred": "cyan", "running": "yellow"}

PATIENCE = 60.0
"""Seconds that Airflow's API may leave requests unanswered: a busy machine, not a broken one."""


@dataclass
class Row:
    """One task as it is shown."""

    task_id: str
    state: str = ""
    phase: str = ""
    replicas: str = ""
    line: str = ""
    seconds: float = 0.0
    started: str = ""
    read: str = ""
    """The state in which the log was read last."""
    told: str = ""
    """The line that was printed last."""


@dataclass
class Display:
    """A live table on a terminal; a line for each change elsewhere."""

    console: Console
    rows: dict[str, Row] = field(default_factory=dict)
    _told: dict[str, tuple[str, str]] = field(default_factory=dict)

    def __rich__(self) -> Table:
        table = Table(box=None, pad_edge=False, expand=True)
        for name, width in (("task", 10), ("state", 10), ("phase", 10), ("replicas", 22), ("s", 4)):
            table.add_column(name, width=width, no_wrap=True)
        table.add_column("last line", ratio=1, no_wrap=True, overflow="ellipsis")
        for row in sorted(self.rows.values(), key=lambda row: row.started or "9"):
            state = Text(row.state or "-", style=COLOURS.get(row.state, "dim"))
            table.add_row(row.task_id, state, row.phase, row.replicas, f"{row.seconds:.0f}", Text(row.line, style="dim"))
        return table

    def tell_changes(self) -> None:
        """Print rows whose state or phase is new: what a terminal shows in place. The waits of Airflow's queue are no news."""
        if self.console.is_terminal:
            return
        for row in self.rows.values():
            now = (row.state, row.phase)
            if row.state not in {"", "scheduled", "queued"} and self._told.get(row.task_id) != now:
                self._told[row.task_id] = now
                pods = f" ({row.replicas})" if row.replicas else ""
                text = " ".join(word for word in (f"{row.task_id}:", row.state, row.phase) if word)
                line = f" | {row.line}" if row.line and row.line != row.told else ""
                row.told = row.line
                self.console.print(f"{text}{pods}{line}", markup=False, highlight=False, soft_wrap=True)


async def follow_run(api: AirflowAPI, kubeconfig: str, dag_id: str, run_id: str, console: Console) -> str:
    """Show the run until it ends; its final state. An API that answers nothing for a minute raises its HTTP error."""
    display = Display(console)
    answered = time.monotonic()
    live = Live(display, console=console, refresh_per_second=4) if console.is_terminal else nullcontext()
    async with Client(access.from_kubeconfig(path=kubeconfig)) as client:
        with live:
            while True:
                try:
                    state = await api.run_state(dag_id, run_id)
                    await refresh(display, api, client, dag_id, run_id)
                    answered = time.monotonic()
                except httpx.TransportError:
                    if time.monotonic() - answered > PATIENCE or not api.runs():
                        raise
                    state = ""
                display.tell_changes()
                if state in {"success", "failed"}:
                    return state
                await asyncio.sleep(1)


async def refresh(display: Display, api: AirflowAPI, client: Client, dag_id: str, run_id: str) -> None:
    """Read tasks, workloads and last lines."""
    tasks = sorted(await api.tasks(dag_id, run_id), key=lambda task: task.get("start_date") or "9")
    for task in tasks:
        row = display.rows.setdefault(task["task_id"], Row(task["task_id"]))
        row.state, row.seconds, row.started = task["state"] or "", seconds_of(task), task.get("start_date") or ""
    await add_workloads(display, client, tasks)
    for task in tasks:
        row = display.rows[task["task_id"]]
        if row.started and (row.state in {"running", "deferred"} or row.read != row.state):
            entries = await api.log(dag_id, run_id, task["task_id"], try_number=max(task["try_number"], 1))
            row.line, row.read = last_line(entries) or row.line, row.state


async def add_workloads(display: Display, client: Client, tasks: list[dict[str, Any]]) -> None:
    """Fill in phase and replicas from the platform; the display does without while it can't be read."""
    namespace = client.access.namespace
    by_ti = {task["id"]: display.rows[task["task_id"]] for task in tasks}
    try:
        pods = (await client.list(PODS, namespace)).items
        for workload in workloads.all_workloads():
            for item in (await client.list(workload.api, namespace)).items:
                row = by_ti.get(item["metadata"].get("annotations", {}).get("airflow-mlxp/ti-id", ""))
                if row:
                    row.phase = str(workload.phase_of(item))
                    row.replicas = replicas_text(pods, item["metadata"]["uid"])
    except MLXPError:
        return


def replicas_text(pods: list[dict[str, Any]], uid: str) -> str:
    """``2 Running``: the workload's pods by phase."""
    phases = [
        pod.get("status", {}).get("phase", "Pending")
        for pod in pods
        if any(owner["uid"] == uid for owner in pod["metadata"].get("ownerReferences", ()))
    ]
    return ", ".join(f"{phases.count(phase)} {phase}" for phase in sorted(set(phases)))


def last_line(entries: list[dict[str, Any]]) -> str:
    """Why a task failed, else the last line that its programs wrote, else what was told of them last; never Airflow's own."""
    rank, found = 0, ""
    for entry in entries:
        lines = [line for line in text_of(entry).splitlines() if line.strip()]
        if lines and (of := rank_of(entry)) >= max(rank, 1):
            rank, found = of, lines[0] if entry.get("level") == "error" else lines[-1]
    return "".join(character for character in found if character.isprintable())


def rank_of(entry: dict[str, Any]) -> int:
    """How much a record is worth to somebody who watches: 0 not at all, 3 most."""
    if entry.get("level") in {"error", "critical"}:
        return 3
    if entry.get("logger") == "task.stdout" or str(entry.get("event", "")).startswith("["):
        return 2
    return int(entry.get("logger") == "airflow_mlxp")


def text_of(entry: dict[str, Any]) -> str:
    """A record's text; of one with an exception the exception's."""
    causes = [f"{error['exc_type']}: {error['exc_value']}" for error in entry.get("error_detail") or ()]
    return causes[0] if causes else str(entry.get("event", ""))


def seconds_of(task: dict[str, Any]) -> float:
    """Seconds since the task started, or that it took."""
    if task.get("duration"):
        return float(task["duration"])
    if not task.get("start_date"):
        return 0.0
    return max(0.0, time.time() - datetime.fromisoformat(task["start_date"]).timestamp())
