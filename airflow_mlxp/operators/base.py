"""What both operators are: arguments in, manifest out, then wait in the triggerer, or in the worker with ``deferrable=False``."""

from __future__ import annotations

import uuid
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import structlog
from airflow.sdk.exceptions import AirflowFailException, TaskDeferralError, TaskDeferralTimeout

from airflow_mlxp import compat, connection, identity, naming, workloads
from airflow_mlxp.errors import InvalidArgument, MLXPError, PermanentFailure
from airflow_mlxp.manifests import pod
from airflow_mlxp.models import Timings
from airflow_mlxp.operators import arguments, outcomes
from airflow_mlxp.operators.described import DescribedOperator
from airflow_mlxp.triggers.report import LOGGER_NAME, LogRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk.definitions.context import Context

    from airflow_mlxp.cluster.endings import FollowOptions
    from airflow_mlxp.manifests.spec import BuiltManifest
    from airflow_mlxp.models import WorkloadRef
    from airflow_mlxp.operators.attempt import Attempt
    from airflow_mlxp.triggers.events import ResultShape, WorkloadEvent

WORKLOAD_XCOM = "workload"
"""Key of the XCom with the facts of the workload: kind, name, uid, namespace, server, timings."""
DEFER_MARGIN = 120.0
"""Seconds by which the deferral outlives ``execution_timeout``: the trigger itself ends the workload at that time and needs some
seconds for its logs; Airflow's own time-out, which knows no reason, is only the net."""
_NONCES_KEY = "mlxp_nonces"
_KEPT_NONCES = 20


class MLXPOperator(DescribedOperator):
    """Run one workload for each try of the task and hand on its result.

    Arguments that describe the workload are those of ``DescribedOperator``. They win over ``manifest``, and the platform's
    defaults fill what both leave open. All text may be templated.

    Args:
        mlxp_conn_id: connection of type ``mlxp`` or ``kubernetes``.
        deferrable: wait in the triggerer (default), or in the worker.
        wait: False only submits: the task succeeds as soon as the workload exists.
        drain_timeout: seconds that replicas may go on after the workload succeeded, to write checkpoints.
        success_policy: ``all`` replicas must end with 0, or ``any``: the controller's condition suffices.
        start_timeout: seconds in which every needed replica must have started; None waits for a place as long as it takes.
        logs: whether the replicas' log lines are written into the task's log.
        kwargs: name, image, command, args, env, cpu, memory, gpus, volumes, ...: see ``DescribedOperator``.

    ``execution_timeout`` counts from the creation of the workload and deletes it. ``do_xcom_push=False`` ignores results.

    Raises:
        InvalidArgument: an argument that isn't templated can't be.
    """

    template_fields: Sequence[str] = ("mlxp_conn_id", *DescribedOperator.template_fields)
    ui_color = "#e3f2e9"

    def __init__(
        self,
        *,
        mlxp_conn_id: str = connection.DEFAULT_CONN_ID,
        deferrable: bool = True,
        wait: bool = True,
        drain_timeout: float = 600.0,
        success_policy: Literal["all", "any"] = "all",
        start_timeout: float | None = None,
        logs: bool = True,
        **kwargs: Any,
    ) -> None:
        self.mlxp_conn_id = mlxp_conn_id
        self.deferrable, self.wait, self.logs = deferrable, wait, logs
        self.drain_timeout, self.start_timeout = drain_timeout, start_timeout
        self.success_policy = success_policy
        self._attempt: Attempt | None = None
        super().__init__(**kwargs)

    def result_shape(self, manifest: Mapping[str, Any]) -> ResultShape:  # noqa: ARG002 - a kind may look
        """How the replicas' termination messages become the result."""
        return "single" if self.do_xcom_push else "ignored"

    def check_arguments(self) -> None:
        """Those of the workload, and how to wait for it."""
        arguments.check_text("mlxp_conn_id", self.mlxp_conn_id)
        for argument in ("deferrable", "wait", "logs"):
            arguments.check_choice(argument, getattr(self, argument), (True, False))
        arguments.check_choice("success_policy", self.success_policy, ("all", "any"))
        for argument in ("drain_timeout", "start_timeout"):
            arguments.check_seconds(argument, getattr(self, argument))
        super().check_arguments()

    # The way of a task

    def execute(self, context: Context) -> Any:
        """Submit the workload; then defer, or follow it here."""
        from airflow_mlxp.operators.runner import Stopped

        try:
            attempt, manifest, task = self._prepare(context)
            submission = attempt.submit(manifest, task, self._nonces(context, task))
            created = Timings(created=str(submission.object["metadata"].get("creationTimestamp", "")))
            self._push_facts(context, submission.ref, server=attempt.access.server, timings=created)
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
        from airflow_mlxp.operators.runner import Stopped
        from airflow_mlxp.triggers import events

        try:
            return self._finish(context, events.decode(event))
        except PermanentFailure as error:
            raise AirflowFailException(str(error)) from None
        except Stopped:
            raise outcomes.killed(self.kind) from None

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

    def on_kill(self) -> None:
        """Delete the workload of a task that is killed while a worker runs it. Called inside a signal handler."""
        if self._attempt:
            self._attempt.kill()

    # Its steps

    def _prepare(self, context: Context) -> tuple[Attempt, dict[str, Any], identity.TaskIdentity]:
        from airflow_mlxp.operators.attempt import Attempt

        resolved = self._connection()
        self.read_manifest(context)
        built = self.build(self.spec(zone=self.zone or resolved.zone or None), namespace=resolved.access.namespace)
        self.mask_secrets(built)
        self._tell(built)
        task = _identity(context)
        workload = workloads.get(self.kind)
        name = built.name_prefix if built.exact_name else naming.workload_name(built.name_prefix or self.task_id, task.ti_id)
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
        self._complete_logs(context, event)
        if event.status is EventStatus.LOST:
            self._abandon(context, keep_for_retry=True)
        if event.diagnosis:
            raise outcomes.error(event.diagnosis)
        return event.result

    def _abandon(self, context: Context, *, keep_for_retry: bool) -> None:
        """Nobody watches the workload any longer: stop it, or leave it to the next try, which goes on with it."""
        ref = outcomes.ref_of(context["ti"].xcom_pull(key=WORKLOAD_XCOM, map_indexes=context["ti"].map_index))
        if ref is None:
            return
        if keep_for_retry and compat.retry_follows(context):
            _write(LogRecord(f"{ref.kind} {ref.namespace}/{ref.name} is left running: the next try goes on with it"))
            return
        try:
            self._late_attempt(context, ref).delete(ref, by="abandoned")
        except MLXPError as error:
            _write(
                LogRecord(f"{ref.kind} {ref.namespace}/{ref.name} may still run, it could not be deleted: {error}", warning=True)
            )

    def _complete_logs(self, context: Context, event: WorkloadEvent) -> None:
        """Write the lines that could not be carried live; say which of them are missing. Other gaps have been told."""
        late = [gap for gap in event.log_gaps if gap.is_open]
        if not late or event.ref is None:
            return
        try:
            missing = self._late_attempt(context, event.ref).complete_logs(event.ref.namespace, late)
        except MLXPError as error:  # trouble with logs never decides the result
            missing = [replace(gap, reason=str(error)) for gap in late]
        for gap in missing:
            _write(outcomes.gap_record(gap))

    def _late_attempt(self, context: Context, ref: WorkloadRef) -> Attempt:
        """For what is left to do when the workload, or its trigger, has ended."""
        from airflow_mlxp.operators.attempt import Attempt

        self._attempt = Attempt(
            access=self._connection().access,
            workload=workloads.get(ref.kind),
            owner=str(context["ti"].id),
            options=self._options(),
            write=_write,
        )
        return self._attempt

    def _push_facts(self, context: Context, ref: WorkloadRef, **facts: Any) -> None:
        context["ti"].xcom_push(key=WORKLOAD_XCOM, value=outcomes.facts(ref, **facts))

    def _tell(self, built: BuiltManifest) -> None:
        for line in built.warnings:
            _write(LogRecord(line, warning=True))
        for line in built.notes:
            _write(LogRecord(line))


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
