"""Readers of objects are total: no JSON makes them raise."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mlxp import diagnosis, workloads
from airflow_mlxp.models import Diagnosis, Phase
from airflow_mlxp.workloads import replicas, verdict

KEYS = st.sampled_from(
    re.findall(
        r"\w+",
        """
        apiVersion kind metadata spec status conditions type reason message lastTransitionTime name uid labels annotations
        generateName creationTimestamp deletionTimestamp deletionGracePeriodSeconds ownerReferences containers initContainers
        restartPolicy nodeName containerStatuses initContainerStatuses state lastState running waiting terminated exitCode
        restartCount finishedAt startedAt phase pytorchReplicaSpecs Worker Master replicas template elasticPolicy minReplicas
        maxReplicas runPolicy cleanPodPolicy suspend completions parallelism completionMode active ready failed succeeded
        uncountedTerminatedPods involvedObject lastTimestamp series
        """,
    )
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-3, 200)
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.sampled_from(
        ["True", "Succeeded", "Failed", "Running", "Complete", "pytorch", "main", "OOMKilled", "2026-01-01T00:00:00Z", "Warning"]
    )
)
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=25)
CONTAINER_STATUS = st.fixed_dictionaries(
    {"name": st.sampled_from(["pytorch", "main", 3])},
    optional={
        "state": st.dictionaries(KEYS, JSON, max_size=3),
        "lastState": st.dictionaries(KEYS, JSON, max_size=2),
        "restartCount": LEAVES,
    },
)
POD = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.dictionaries(KEYS, JSON, max_size=5),
        "spec": st.dictionaries(KEYS, JSON, max_size=5),
        "status": st.fixed_dictionaries(
            {},
            optional={
                "phase": LEAVES,
                "reason": LEAVES,
                "conditions": JSON,
                "containerStatuses": st.lists(CONTAINER_STATUS, max_size=2),
            },
        ),
    },
)
CONDITION = st.fixed_dictionaries(
    {"type": LEAVES | st.sampled_from(["Created", "Suspended", "FailureTarget"]), "status": LEAVES}, optional={"message": LEAVES}
)
OBJECT = st.dictionaries(KEYS, JSON, max_size=5) | st.builds(
    lambda conditions, spec: {"spec": spec, "status": {"conditions": conditions}}, st.lists(CONDITION | JSON, max_size=4), JSON
)

every_kind = pytest.mark.parametrize("workload", workloads.all_workloads(), ids=lambda w: w.kind)


@every_kind
@given(obj=OBJECT)
def test_readers_of_objects_are_total(workload, obj):
    phase = workload.phase_of(obj)
    assert phase in Phase
    assert phase is not Phase.GONE
    workload.condition_of(obj)
    rule = workload.completion_of(obj)
    assert 0 <= rule.min_replicas <= rule.replicas
    assert len(set(workload.replicas_of(obj))) == len(workload.replicas_of(obj))
    workload.pod_templates_of(obj)
    assert workload.is_suspended(obj) in {True, False}


@every_kind
@given(obj=OBJECT, pods=st.lists(POD, max_size=3), removed=st.lists(POD, max_size=2))
def test_verdict_is_total_and_final_once_the_time_is_over(workload, obj, pods, removed):
    found = replicas.current_replicas(workload, obj, pods, removed)
    judged = verdict.verdict(workload, obj, found, waited=601)
    assert judged.is_final or workload.phase_of(obj) is not Phase.SUCCEEDED
    assert not {*judged.left} & {*judged.failed}
    assert all(count >= 0 for count in replicas.restart_counts(workload, pods).values())
    replicas.effective_phase(workload.phase_of(obj), found)
    [replicas.result_of(workload, pod) for pod in pods]


@every_kind
@given(
    obj=OBJECT,
    pods=st.lists(POD, max_size=3),
    events=st.lists(st.dictionaries(KEYS, JSON, max_size=5), max_size=3),
    phase=st.sampled_from([Phase.FAILED, Phase.GONE, Phase.PENDING, Phase.CREATED]),
    stopped_by=st.sampled_from(diagnosis.StoppedBy),
    tail=st.lists(
        st.text(max_size=30) | st.sampled_from(["Traceback (most recent call last):", '  File "a", line 1', "E: x"]), max_size=6
    ),
)
def test_diagnosis_is_total(workload, obj, pods, events, phase, stopped_by, tail):
    found = replicas.current_replicas(workload, obj, pods)
    facts = diagnosis.Facts(
        workload=workload,
        phase=phase,
        object=obj,
        pods=pods,
        events=events,
        replicas=found,
        stopped_by=stopped_by,
        log_tails={replica.replica: tail for replica in found},
    )
    explained = diagnosis.diagnose(facts)
    assert isinstance(explained, Diagnosis)
    assert explained.sentence
    assert explained.advice
    assert len(explained.as_text()) < 16_384
    diagnosis.why_waiting(facts)
