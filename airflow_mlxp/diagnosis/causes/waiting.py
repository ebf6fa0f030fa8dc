"""Why a workload does not run yet: image, missing objects, quota, nodes, controller."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from airflow_mlxp.diagnosis.conclude import conclude
from airflow_mlxp.models import Diagnosis, FailureClass, Phase, ReplicaPhase
from airflow_mlxp.workloads import objects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from airflow_mlxp.diagnosis.facts import Facts

_IMAGE_REASONS = {
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
}
_MISSING = re.compile(r"(?P<what>secret|configmap|persistentvolumeclaim)s? \"?(?P<name>[^\" ]+)\"? not found", re.IGNORECASE)
_NAME_TOO_LONG = re.compile(r"exceeds maximum length|must be no more than \d+ (?:characters|bytes)", re.IGNORECASE)
_QUOTA = re.compile(
    r"exceeded quota: (?P<quota>[^,]+), requested: (?P<requested>.+?), used: (?P<used>.+?), limited: (?P<limited>.+)$",
    re.IGNORECASE,
)
_NODES = re.compile(r"0/(?P<all>\d+) nodes are available")
_MISMATCH = re.compile(r"(?P<some>\d+) node\(s\) didn't (?:match|satisfy) (?:Pod's )?node (?:affinity|selector)", re.IGNORECASE)
_CREATE_REFUSED = ("FailedCreate", "FailedCreatePod", "FailedCreateService")
_INFRASTRUCTURE, _PERMANENT = FailureClass.INFRASTRUCTURE, FailureClass.PERMANENT


def image_pull(facts: Facts) -> Diagnosis | None:
    """An image can't be had."""
    for replica in _not_started(facts):
        reason = replica.reason.removeprefix("Init:")
        if reason in _IMAGE_REASONS:
            sentence = f"{replica.replica} can't get its image ({reason})"
            return conclude(
                "image_pull", sentence, failure_class=_PERMANENT, evidence=[replica.message, *_messages(facts, "Failed")]
            )
    return None


def missing_object(facts: Facts) -> Diagnosis | None:
    """A secret, config map or volume claim does not exist."""
    for message in (*(replica.message for replica in _not_started(facts)), *_messages(facts)):
        if match := _MISSING.search(message):
            sentence = f"{match['what'].lower()} {match['name']} does not exist in the namespace"
            return conclude("missing_object", sentence, failure_class=_PERMANENT, evidence=[message])
    return None


def quota(facts: Facts) -> Diagnosis | None:
    """The namespace's quota does not admit a pod."""
    for message in _messages(facts, *_CREATE_REFUSED):
        if match := _QUOTA.search(message):
            sentence = (
                f"quota {match['quota']} does not admit all pods: requested {match['requested']}, "
                f"used {match['used']}, limited to {match['limited']}"
            )
            return conclude("quota", sentence, failure_class=_INFRASTRUCTURE, evidence=[message])
    return None


def refused(facts: Facts) -> Diagnosis | None:
    """The API server refuses the pods or services that the controller asks for."""
    for message in _messages(facts, *_CREATE_REFUSED):
        if _NAME_TOO_LONG.search(message):
            sentence = "the workload's name is too long for its pods and services"
            return conclude("name_too_long", sentence, failure_class=_PERMANENT, evidence=[message])
        if "forbidden" in message.lower():
            return conclude("forbidden", "the cluster refuses to create its pods", failure_class=_PERMANENT, evidence=[message])
    return None


def unschedulable(facts: Facts) -> Diagnosis | None:
    """No node takes a pod: permanent only when every node lacks the labels asked for."""
    waiting = [replica for replica in _not_started(facts) if replica.reason in {"Unschedulable", "SchedulerError"}]
    for name, message in (
        *((r.replica, r.message) for r in waiting),
        *(("a pod", m) for m in _messages(facts, "FailedScheduling")),
    ):
        nodes, mismatch = _NODES.search(message), _MISMATCH.search(message)
        if nodes and mismatch and nodes["all"] == mismatch["some"]:
            sentence = f"{name} fits no node: none of {nodes['all']} nodes has the labels that it asks for"
            return conclude("zone_missing", sentence, failure_class=_PERMANENT, evidence=[message])
        return conclude("unschedulable", f"{name} finds no node with room", failure_class=_INFRASTRUCTURE, evidence=[message])
    return None


def suspended(facts: Facts) -> Diagnosis | None:
    """Somebody holds it back, a queue for instance."""
    if facts.phase is not Phase.SUSPENDED:
        return None
    return conclude("suspended", f"{facts.what} is suspended", failure_class=_INFRASTRUCTURE)


def no_controller(facts: Facts) -> Diagnosis | None:
    """Nothing has touched the object: no condition, no pod, no event."""
    if facts.phase is not Phase.PENDING or facts.pods or facts.events:
        return None
    sentence = f"no controller has taken notice of {facts.what}: it has no condition, no pod and no event"
    return conclude("no_controller", sentence, failure_class=_INFRASTRUCTURE)


def no_pods(facts: Facts) -> Diagnosis | None:
    """The controller has seen the object and creates no pod: it waits for the whole group to fit."""
    if facts.phase is not Phase.CREATED or facts.pods:
        return None
    sentence = f"the pods of {facts.what} have not been created: with gang scheduling all of them wait until they fit together"
    return conclude("gang_pending", sentence, failure_class=_INFRASTRUCTURE, evidence=_messages(facts))


_TABLE: tuple[Callable[[Facts], Diagnosis | None], ...] = (
    image_pull,
    missing_object,
    quota,
    refused,
    unschedulable,
    suspended,
    no_controller,
    no_pods,
)


def explain(facts: Facts) -> Diagnosis | None:
    """The first cause of the table that fits; None when nothing holds the workload up that is known."""
    return next((diagnosis for cause in _TABLE if (diagnosis := cause(facts)) is not None), None)


def _not_started(facts: Facts) -> list[Any]:
    return [replica for replica in facts.replicas if replica.phase is ReplicaPhase.PENDING and not replica.started_at]


def _messages(facts: Facts, *reasons: str) -> list[str]:
    """Messages of the Warning events that still hold, newest first; with ``reasons`` of those only."""
    events = [event for event in facts.events if _counts(facts, event)]
    wanted = [event for event in events if not reasons or objects.text(event.get("reason")) in reasons]
    return [objects.text(event.get("message")) for event in sorted(wanted, key=_time, reverse=True)]


def _counts(facts: Facts, event: Mapping[str, Any]) -> bool:
    message, about = objects.text(event.get("message")), objects.text(objects.at(event, "involvedObject", "uid"))
    if event.get("type") != "Warning" or "already exists" in message:
        return False
    started = {replica.pod_uid for replica in facts.replicas if replica.started_at}
    refused_pod = re.search(r'pods? "(?P<name>[^"]+)" is forbidden', message, re.IGNORECASE)
    created = refused_pod is not None and refused_pod["name"] in set(_pod_names(facts))
    return about not in started and not created


def _pod_names(facts: Facts) -> Iterator[str]:
    return (objects.name_of(pod) for pod in facts.pods)


def _time(event: Mapping[str, Any]) -> str:
    series = objects.at(event, "series", "lastObservedTime")
    return objects.text(series) or objects.text(event.get("lastTimestamp")) or objects.text(event.get("eventTime"))
