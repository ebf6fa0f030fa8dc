"""What both operators are: arguments in, manifest out, then wait in the triggerer, or in the worker with ``deferrable=False``."""

from __future__ import annotations

import uuid
from dataclasses import asdict, fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import structlog
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException, TaskDeferralError, TaskDeferralTimeout

from airflow_mlxp import compat, connection, identity, naming, workloads
from airflow_mlxp.errors import InvalidArgument, MLXPError, PermanentFailure
from airflow_mlxp.manifests import pod
from airflow_mlxp.manifests.spec import WorkloadSpec
from airflow_mlxp.manifests.unset import UNSET, Unset
from airflow_mlxp.operators import arguments, outcomes
from airflow_mlxp.triggers.report import LOGGER_NAME, LogRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk.definitions.context import Context

    from airflow_mlxp.cluster.endings import FollowOptions
    from airflow_mlxp.manifests.spec import BuiltManifest, Env, Volume
    from airflow_mlxp.models import WorkloadRef
    from airflow_mlxp.operators.attempt import Attempt
    from airflow_mlxp.quantity import Quantity
    from airflow_mlxp.triggers.events import ResultShape, WorkloadEvent

WORKLOAD_XCOM = "workload"
"""Key of the XCom with the facts of the workload: kind, name, uid, namespace, server, timings."""
DEFER_MARGIN = 120.0
"""Seconds by which the deferral outlives ``execution_timeout``: the trigger itself ends the workload at that time and needs some
seconds for its logs; Airflow's own time-out, which knows no reason, is only the net."""
_NONCES_KEY = "mlxp_nonces"
_KEPT_NONCES = 20
_ARGUMENTS = tuple(field.name for field in fields(WorkloadSpec))


class MLXPOperator(BaseOperator):
    """Run one workload for each try of the task and hand on its result.

    Arguments that describe the workload are those of ``manifests.spec.WorkloadSpec``, which says more about each. They win over
    ``manifest``, and the platform's defaults fill what both leave open. All text may be templated.

    Args:
        mlxp_conn_id: connection of type ``mlxp`` or ``kubernetes``.
        namespace: default: the manifest's, else the connection's.
        deferrable: wait in the triggerer (default), or in the worker.
        wait: False only submits: the task succeeds as soon as the workload exists.
        drain_timeout: seconds that replicas may go on after the workload succeeded, to write checkpoints.
        success_policy: ``all`` replicas must end with 0, or ``any``: the controller's condition suffices.
        grace_seconds: between SIGTERM and SIGKILL when pods are stopped; default: the manifest's, else 30.
        start_timeout: seconds in which every needed replica must have started; None waits for a place as long as it takes.
        logs: whether the replicas' log lines are written into the task's log.
        name, image, command, args, env, cpu, memory, gpus, volumes, ...: see ``WorkloadSpec``.

    ``execution_timeout`` counts from the creation of the workload and deletes it. ``do_xcom_push=False`` ignores results.

    Raises:
        InvalidArgument: an argument that isn't templated can't be.
    """

    kind: ClassVar[str]
    """Kind of the workload, as in manifests."""
    template_fields: Sequence[str] = (
        "mlxp_conn_id",
        "namespace",
        "name",
        "image",
        "command",
        "args",
        "env",
        "cpu",
        "memory",
        "gpus",
        "working_dir",
        "image_pull_secrets",
        "volumes",
        "zone",
        "node_selector",
        "tolerations",
        "service_account",
        "labels",
        "annotations",
        "active_deadline_seconds",
        "manifest",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"manifest": "yaml", "env": "json", "args": "json", "command": "json"}
    ui_color = "#e3f2e9"

    def __init__(
        self,
        *,
        mlxp_conn_id: str = connection.DEFAULT_CONN_ID,
        namespace: str | None = None,
        deferrable: bool = True,
        wait: bool = True,
        drain_timeout: float = 600.0,
        success_policy: Literal["all", "any"] = "all",
        grace_seconds: int | str | None = None,
        start_timeout: float | None = None,
        logs: bool = True,
        name: str | None = None,
        manifest: Mapping[str, Any] | str | None = None,
        image: str | None = None,
        command: Sequence[str] | None = None,
        args: Sequence[str] | None = None,
        env: Env | None = None,
        cpu: Quantity | None = None,
        memory: Quantity | None = None,
        gpus: int | str | None = None,
        working_dir: str | None = None,
        image_pull_policy: str | Unset | None = UNSET,
        image_pull_secrets: Sequence[str] = (),
        volumes: Mapping[str, str | Volume] | None = None,
        shared_memory: bool | Unset = UNSET,
        zone: str | None = None,
        infiniband: bool = False,
        node_selector: Mapping[str, str] | None = None,
        tolerations: Sequence[Mapping[str, Any]] = (),
        service_account: str | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        restart_policy: str | Unset = UNSET,
        ttl_seconds_after_finished: int | str | Unset | None = UNSET,
        backoff_limit: int | str | Unset | None = UNSET,
        active_deadline_seconds: int | str | None = None,
        suspend: bool = False,
        **kwargs: Any,
    ) -> None:
        given = locals()
        super().__init__(**kwargs)
        for argument in _ARGUMENTS:
            setattr(self, argument, given[argument])
        self.mlxp_conn_id, self.namespace, self.zone, self.manifest = mlxp_conn_id, namespace, zone, manifest
        self.deferrable, self.wait, self.logs = deferrable, wait, logs
        self.drain_timeout, self.start_timeout = drain_timeout, start_timeout
        self.success_policy = success_policy
        self._attempt: Attempt | None = None
        self._check_arguments()

    # What a kind adds

    def spec_type(self) -> type[WorkloadSpec]:
        """The class of the kind's arguments."""
        raise NotImplementedError

    def build(self, spec: Any, *, namespace: str) -> BuiltManifest:
        """The manifest of these arguments."""
        raise NotImplementedError

    def result_shape(self, manifest: Mapping[str, Any]) -> ResultShape:  # noqa: ARG002 - a kind may look
        """How the replicas' termination messages become the result."""
        return "single" if self.do_xcom_push else "ignored"

    # The way of a task

    def execute(self, context: Context) -> Any:
        """Submit the workload; then defer, or follow it here."""
        from airflow_mlxp.operators.runner import Stopped

        try:
            attempt, manifest, task = self._prepare(context)
            submission = attempt.submit(manifest, task, self._nonces(context, task))
            self._push_facts(context, submission.ref, server=attempt.access.server)
            if not self.wait:
                return None
            if self.deferrable and not attempt.workload.phase_of(submission.object).is_terminal:
                self._defer(attempt, submission.ref)
            event = attempt.follow(submission.ref)
            self._attempt = None
            return self._finish(context, event)
        except (InvalidArgument, PermanentFailure) as error:
            raise AirflowFailException(str(error)) from None
        except Stopped:
            raise outcomes.killed(self.kind) from None

    def execute_complete(self, context: Context, event: Any) -> Any:
        """The end of a deferral: the event becomes XComs and the result, or the exception of its diagnosis."""
        from airflow_mlxp.triggers import events

        try:
            return self._finish(context, events.decode(event))
        except PermanentFailure as error:
            raise AirflowFailException(str(error)) from None

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """As Airflow's; a trigger that timed out or died leaves its workload behind, which is stopped first."""
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except TaskDeferralTimeout:
            self._abandon(context, keep_for_retry=False)
            raise
        except TaskDeferralError:
            self._abandon(context, keep_for_retry=True)
            raise

    def render_template(self, content: Any, context: Context, jinja_env: Any = None, seen_oids: set[int] | None = None) -> Any:
        """As Airflow's; text that Jinja can't read is named, with the way to keep it from Jinja."""
        from jinja2 import TemplateSyntaxError

        try:
            return super().render_template(content, context, jinja_env, seen_oids)
        except TemplateSyntaxError as error:
            raise AirflowFailException(outcomes.template_mistake(content, error.message or "", error.lineno)) from None

    def on_kill(self) -> None:
        """Delete the workload of a task that is killed while a worker runs it. Called inside a signal handler."""
        if self._attempt:
            self._attempt.kill()

    # Its steps

    def _prepare(self, context: Context) -> tuple[Attempt, dict[str, Any], identity.TaskIdentity]:
        from airflow_mlxp.operators.attempt import Attempt

        resolved = self._connection()
        built = self.build(self._spec(zone=self.zone or resolved.zone or None), namespace=resolved.access.namespace)
        self._tell(built)
        task = _identity(context)
        workload = workloads.get(self.kind)
        name = naming.workload_name(built.name_prefix or self.task_id, task.ti_id)
        self._attempt = Attempt(
            access=resolved.access,
            workload=workload,
            owner=task.ti_id,
            options=self._options(built.container_restarts, workload.pod_templates_of(built.manifest)),
            results=self.result_shape(built.manifest),
            write=_write,
        )
        return self._attempt, identity.stamp(built.manifest, task, workload.pod_templates_of, name=name), task

    def _connection(self) -> connection.ResolvedConnection:
        conn = compat.get_connection(self.mlxp_conn_id)
        for secret in connection.secrets(conn):
            compat.mask(secret)
        return connection.resolve(conn, allow_exec=compat.flag_option(connection.ALLOW_EXEC_OPTION))

    def _spec(self, **changed: Any) -> WorkloadSpec:
        return arguments.spec(self.spec_type(), self, **changed)

    def _options(self, container_restarts: int | None = None, templates: Sequence[Mapping[str, Any]] = ()) -> FollowOptions:
        from airflow_mlxp.cluster.endings import FollowOptions

        return FollowOptions(
            container_restarts=container_restarts,
            drain_timeout=self.drain_timeout,
            success_policy=self.success_policy,
            timeout=self.execution_timeout.total_seconds() if self.execution_timeout else None,
            start_timeout=self.start_timeout,
            grace_seconds=pod.grace_seconds(templates),
            logs=self.logs,
        )

    def _nonces(self, context: Context, task: identity.TaskIdentity) -> frozenset[str]:
        """The nonces of this task's submissions, this one stored before its workload is created."""
        store = compat.StateStore(context)
        known = [str(nonce) for nonce in store.get(_NONCES_KEY) or []]
        store.set(_NONCES_KEY, [*known, task.nonce][-_KEPT_NONCES:])
        return frozenset(known)

    def _defer(self, attempt: Attempt, ref: WorkloadRef) -> None:
        from airflow_mlxp.triggers.workload import MLXPWorkloadTrigger

        options = attempt.options
        self.defer(
            trigger=MLXPWorkloadTrigger(
                conn_id=self.mlxp_conn_id,
                ref=asdict(ref),
                owner=attempt.owner,
                options=asdict(options),
                results=attempt.results,
                deferred_at=datetime.now(UTC).isoformat(),
            ),
            method_name="execute_complete",
            timeout=options.timeout and timedelta(seconds=options.timeout + options.grace_seconds + DEFER_MARGIN),
        )

    def _finish(self, context: Context, event: WorkloadEvent) -> Any:
        from airflow_mlxp.triggers.events import EventStatus

        if event.ref and event.status is not EventStatus.LOST:
            self._push_facts(context, event.ref, server=event.server, timings=event.timings)
        for gap in event.log_gaps:
            _write(outcomes.gap_record(gap))
        if event.status is EventStatus.LOST:
            self._abandon(context, keep_for_retry=True)
        if event.diagnosis:
            raise outcomes.error(event.diagnosis)
        return event.result

    def _abandon(self, context: Context, *, keep_for_retry: bool) -> None:
        """Nobody watches the workload any longer: stop it, or leave it to the next try, which goes on with it."""
        from airflow_mlxp.operators.attempt import Attempt

        ref = outcomes.ref_of(context["ti"].xcom_pull(key=WORKLOAD_XCOM, map_indexes=context["ti"].map_index))
        if ref is None:
            return
        if keep_for_retry and compat.retry_follows(context):
            _write(LogRecord(f"{ref.kind} {ref.namespace}/{ref.name} is left running: the next try goes on with it"))
            return
        owner, workload = str(context["ti"].id), workloads.get(ref.kind)
        access = self._connection().access
        attempt = Attempt(access=access, workload=workload, owner=owner, options=self._options(), write=_write)
        try:
            attempt.delete(ref, by="abandoned")
        except MLXPError as error:
            _write(
                LogRecord(f"{ref.kind} {ref.namespace}/{ref.name} may still run, it could not be deleted: {error}", warning=True)
            )

    def _push_facts(self, context: Context, ref: WorkloadRef, **facts: Any) -> None:
        context["ti"].xcom_push(key=WORKLOAD_XCOM, value=outcomes.facts(ref, **facts))

    def _tell(self, built: BuiltManifest) -> None:
        for line in built.warnings:
            _write(LogRecord(line, warning=True))
        for line in built.notes:
            _write(LogRecord(line))

    def _check_arguments(self) -> None:
        """Build once with what is known: a mistake shows as an import error of the DAG, not at three in the morning."""
        arguments.check_choice("success_policy", self.success_policy, ("all", "any"))
        for argument in ("drain_timeout", "start_timeout"):
            arguments.check_seconds(argument, getattr(self, argument))
        if arguments.can_be_checked(getattr(self, name) for name in (*_ARGUMENTS, *self.template_fields)):
            with arguments.templates_excused(self.manifest):
                self.build(self._spec(), namespace="unknown")


def _identity(context: Context) -> identity.TaskIdentity:
    ti, dag_run = context["ti"], context["dag_run"]
    return identity.TaskIdentity(
        dag_id=ti.dag_id,
        task_id=ti.task_id,
        run_id=ti.run_id,
        map_index=-1 if ti.map_index is None else ti.map_index,
        ti_id=str(ti.id),
        try_number=ti.try_number,
        max_tries=ti.max_tries,
        retries=ti.task.retries,
        clear_number=getattr(dag_run, "clear_number", None),
        start_date=dag_run.start_date,
        logical_date=dag_run.logical_date,
        run_after=dag_run.run_after,
        instance=compat.option("instance"),
        nonce=uuid.uuid4().hex,
    )


def _write(record: LogRecord) -> None:
    log = structlog.get_logger(logger_name=LOGGER_NAME)
    (log.warning if record.warning else log.info)(record.text, **record.fields)
