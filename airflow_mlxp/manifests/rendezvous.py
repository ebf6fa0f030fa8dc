"""``spec.elasticPolicy``: how the torchrun of each worker finds the others (guide, Elastic Policy)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_mlxp import quantity
from airflow_mlxp.errors import InvalidArgument
from airflow_mlxp.manifests import tree, wire
from airflow_mlxp.manifests.elastic import Elastic

if TYPE_CHECKING:
    from airflow_mlxp.manifests.spec import PyTorchJobSpec
    from airflow_mlxp.profile import Profile

_BACKENDS = ("c10d", "etcd", "etcd-v2")


def apply(
    body: dict[str, Any], spec: PyTorchJobSpec, profile: Profile, *, name: str, workers: int, has_master: bool
) -> Mapping[str, Any]:
    """Write ``elasticPolicy`` and return it; empty where there is none.

    Without a Master it is always there: the operator sets PET_RDZV_* only with it. With one it is there when asked for.
    """
    if has_master and spec.elastic is None and not body.get("elasticPolicy"):
        return {}
    if not workers:
        raise InvalidArgument("elastic", spec.elastic, expected="worker replicas", fix="give workers, or leave elastic out")
    policy = tree.child(body, "elasticPolicy")
    _write(policy, Elastic() if spec.elastic is None else spec.elastic)
    tree.fill(policy, "rdzvId", name)
    tree.fill(policy, "rdzvBackend", profile.rdzv_backend.value)
    if spec.elastic is None:
        # The operator's own rule for a bound that a manifest leaves out.
        tree.fill(policy, "minReplicas", policy.get("maxReplicas"))
        tree.fill(policy, "maxReplicas", policy.get("minReplicas"))
    tree.fill(policy, "minReplicas", workers)
    tree.fill(policy, "maxReplicas", workers)
    tree.fill(policy, "maxRestarts", profile.max_restarts.value)
    _check(policy, workers)
    return policy


def shrinks(policy: Mapping[str, Any]) -> bool:
    """Whether training may go on with fewer workers than were asked for."""
    return bool(policy) and policy["minReplicas"] < policy["maxReplicas"]


def _write(policy: dict[str, Any], elastic: Elastic) -> None:
    if not isinstance(elastic, Elastic):
        raise InvalidArgument("elastic", elastic, expected="an Elastic(...)")
    tree.put(policy, "rdzvId", tree.text(elastic.rdzv_id, "elastic.rdzv_id"))
    tree.put(policy, "rdzvBackend", tree.one_of(elastic.rdzv_backend, "elastic.rdzv_backend", _BACKENDS))
    tree.put(policy, "rdzvHost", tree.text(elastic.rdzv_host, "elastic.rdzv_host"))
    for key, given, argument, minimum in (
        ("rdzvPort", elastic.rdzv_port, "rdzv_port", 1),
        ("minReplicas", elastic.min_replicas, "min_replicas", 1),
        ("maxReplicas", elastic.max_replicas, "max_replicas", 1),
        ("maxRestarts", elastic.max_restarts, "max_restarts", 0),
    ):
        tree.put(policy, key, None if given is None else quantity.whole(given, f"elastic.{argument}", minimum=minimum))
    if elastic.rdzv_conf:
        policy["rdzvConf"] = [{"key": key, "value": value} for key, value in _settings(elastic.rdzv_conf).items()]
    if tree.flag(elastic.standalone, "elastic.standalone"):
        policy["standalone"] = True
    if elastic.metrics:
        if not isinstance(elastic.metrics, list | tuple):
            raise InvalidArgument("elastic.metrics", elastic.metrics, expected="a list of MetricSpecs")
        policy["metrics"] = [wire.plain(metric, f"elastic.metrics[{index}]") for index, metric in enumerate(elastic.metrics)]


def _settings(given: Mapping[str, str | int]) -> dict[str, str]:
    if not isinstance(given, Mapping):
        raise InvalidArgument("elastic.rdzv_conf", given, expected="a mapping such as {'timeout': 900}")
    for key, value in given.items():
        # The operator joins them to one text: k=v,k=v.
        if isinstance(value, bool) or not isinstance(value, str | int) or {",", "="} & set(f"{key}{value}"):
            raise InvalidArgument(f"elastic.rdzv_conf[{key!r}]", value, expected="text without ',' and '=', or a whole number")
    return {key: str(value) for key, value in given.items()}


def _check(policy: Mapping[str, Any], workers: int) -> None:
    low, high = policy["minReplicas"], policy["maxReplicas"]
    for key in ("minReplicas", "maxReplicas"):
        quantity.whole(policy[key], f"elasticPolicy.{key}", minimum=1)
    if low > high:
        raise InvalidArgument("elastic.min_replicas", low, expected=f"at most max_replicas={high}")
    if not low <= workers <= high:
        fix = "torchrun would wait for ever, or turn workers away"
        raise InvalidArgument("workers", workers, expected=f"{low} to {high}, as elastic says", fix=fix)
