"""Why a workload could not be submitted: an API server's answer, or what stood in the way, as an error with a diagnosis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_mlxp import errors
from airflow_mlxp.models import Diagnosis, FailureClass

if TYPE_CHECKING:
    from airflow_mlxp.models import WorkloadRef

_WEBHOOK_DOWN = "failed calling webhook"
_QUOTA = "exceeded quota"
_REFUSED = (errors.BadRequest, errors.Forbidden, errors.NotFound, errors.Unprocessable)


def of_create(error: errors.MLXPError, kind: str) -> errors.WorkloadError | errors.AccessError:
    """The failure of a create, or of its dry run.

    What the server or an admission plugin refuses will be refused again: permanent. A full object quota may have room later, a
    webhook or server that is down may be up, an expired credential may be renewed: those are the platform's, worth another try.
    """
    text = str(error)
    if isinstance(error, errors.AccessError):
        return error
    if isinstance(error, errors.ClusterError):
        message, answer = error.message or text, f"{error.request}: {error.status} {error.reason}"
        if _QUOTA in message.lower():
            return infrastructure("quota", f"The quota of the namespace does not admit the {kind}: {message}")
        if isinstance(error, _REFUSED) and _WEBHOOK_DOWN not in message:
            return permanent("refused", f"The API server refused the {kind}: {message}", evidence=(answer,))
        return infrastructure("api_server", f"The API server could not take the {kind}: {message}", evidence=(answer,))
    return infrastructure("api_server", f"The API server did not answer: {text}")


def superseded(own: str, newer: str) -> errors.InfrastructureFailure:
    """We are the stale try: a newer one has submitted already."""
    return infrastructure(
        "superseded", f"A newer try of this task (owner {newer}) has submitted its workload; this one ({own}) stops."
    )


def name_taken(ref: WorkloadRef, owner: str) -> errors.PermanentFailure:
    """The name belongs to somebody else."""
    whose = f"is owned by {owner}" if owner else "has no owner annotation"
    return permanent(
        "name_taken",
        f"{ref.kind} {ref.namespace}/{ref.name} exists already and {whose}; nothing was created.",
        advice="Delete it, or choose another name: names that are not given exactly end in a hash and can't collide.",
    )


def withdrawn(ref: WorkloadRef) -> errors.InfrastructureFailure:
    """Our own workload is being deleted by somebody else."""
    return infrastructure("deleted", f"{ref.kind} {ref.namespace}/{ref.name} of this try is being deleted.")


def in_the_way(ref: WorkloadRef, seconds: float) -> errors.InfrastructureFailure:
    """A predecessor could not be removed in time."""
    return infrastructure(
        "predecessor",
        f"{ref.kind} {ref.namespace}/{ref.name} of an earlier try still exists, or has pods, {seconds:.0f} s after its deletion.",
        advice="A pod that doesn't end is mostly one on a node that is lost; kubectl get pods -o wide names it.",
    )


def permanent(category: str, sentence: str, *, evidence: tuple[str, ...] = (), advice: str = "") -> errors.PermanentFailure:
    """A failure that another try can't help."""
    return errors.PermanentFailure(
        Diagnosis(category=category, failure_class=FailureClass.PERMANENT, sentence=sentence, evidence=evidence, advice=advice)
    )


def infrastructure(
    category: str, sentence: str, *, evidence: tuple[str, ...] = (), advice: str = ""
) -> errors.InfrastructureFailure:
    """A failure of the platform: another try is right."""
    return errors.InfrastructureFailure(
        Diagnosis(
            category=category, failure_class=FailureClass.INFRASTRUCTURE, sentence=sentence, evidence=evidence, advice=advice
        )
    )
