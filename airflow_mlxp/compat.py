"""Every difference between Airflow versions, and typed wrappers of what Airflow leaves untyped. Nothing else may know either."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Connection


def get_connection(conn_id: str) -> Connection:
    """The connection, looked up in a worker."""
    from airflow.sdk import BaseHook

    return BaseHook.get_connection(conn_id)


async def aget_connection(conn_id: str) -> Connection:
    """The connection, looked up in a triggerer; the first look-up of a process takes seconds.

    ``dag.test()`` runs triggers without the asynchronous channel to the supervisor: there the synchronous look-up is used.
    """
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException

    try:
        return await BaseHook.aget_connection(conn_id)
    except AirflowNotFoundException:
        connection: Connection = await _in_thread(get_connection, conn_id)
        return connection


async def _in_thread(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a synchronous call of the task SDK on the one thread that asgiref keeps for them."""
    from asgiref.sync import sync_to_async

    return await sync_to_async(function)(*args, **kwargs)


def mask(secret: str) -> None:
    """Keep a secret out of the logs of this process and its supervisor."""
    from airflow.sdk.log import mask_secret

    if secret:
        mask_secret(secret)


def is_secret_name(name: str) -> bool:
    """Whether Airflow hides what stands under this name (``[core] sensitive_var_conn_names`` and its own list)."""
    from importlib import import_module

    try:
        module = import_module("airflow.sdk._shared.secrets_masker")
    except ImportError:  # Airflow < 3.2
        module = import_module("airflow.sdk.execution_time.secrets_masker")
    return bool(module.should_hide_value_for_key(name))


async def amask(secret: str) -> None:
    """The same in a triggerer, where a synchronous call would block the event loop."""
    try:
        from airflow.sdk.log import amask_secret
    except ImportError:  # Airflow < 3.2
        await _in_thread(mask, secret)
        return
    if secret:
        await amask_secret(secret)


def redact(text: str) -> str:
    """The text with every secret that this process knows replaced by asterisks."""
    from importlib import import_module

    module = import_module("airflow.sdk.log")
    if not hasattr(module, "redact"):  # Airflow < 3.2
        module = import_module("airflow.sdk.execution_time.secrets_masker")
    return str(module.redact(text))


def option(name: str, *, fallback: str = "") -> str:
    """The value of ``[mlxp] <name>``."""
    from airflow.configuration import conf

    return str(conf.get("mlxp", name, fallback=fallback))


def flag_option(name: str) -> bool:
    """The value of the boolean ``[mlxp] <name>``; false when it isn't set."""
    from airflow.configuration import conf

    return bool(conf.getboolean("mlxp", name, fallback=False))


def calls_on_kill() -> bool:
    """Whether this Airflow tells a trigger that a user killed its task (3.3 and later). Otherwise the task's state must tell."""
    from airflow.triggers.base import BaseTrigger

    return hasattr(BaseTrigger, "on_kill")


async def task_state(*, dag_id: str, run_id: str, task_id: str, map_index: int) -> str | None:
    """State of a task instance as the database has it; None when it has none or was removed. For triggers.

    Raises:
        Exception: the supervisor could not answer; the state is unknown then.
    """
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    states = await _in_thread(
        RuntimeTaskInstance.get_task_states,
        dag_id=dag_id,
        task_ids=[task_id],
        run_ids=[run_id],
        map_index=map_index if map_index >= 0 else None,
    )
    # The API names a mapped task instance <task_id>_<map_index>.
    key = task_id if map_index < 0 else f"{task_id}_{map_index}"
    state = states.get(run_id, {}).get(key)
    return None if state is None else str(getattr(state, "value", state))


def retry_follows(context: Mapping[str, Any]) -> bool:
    """Whether Airflow will try the task again when this try fails with an ordinary exception."""
    ti = context["ti"]
    from_server = getattr(ti, "_ti_context_from_server", None)
    return bool(getattr(from_server, "should_retry", False)) and getattr(ti.task, "retry_policy", None) is None


class StateStore:
    """What a task keeps over its tries (Airflow 3.3 and later); forgets everything on earlier versions."""

    def __init__(self, context: Mapping[str, Any]) -> None:
        self._store = context.get("task_state_store")

    def get(self, key: str) -> Any:
        """The stored value, or None."""
        if self._store is None:
            return None
        with suppress(NotImplementedError):
            return self._store.get(key)
        return None

    def set(self, key: str, value: Any) -> None:
        """Store a JSON value."""
        if self._store is not None:
            with suppress(NotImplementedError):
                self._store.set(key, value)
