"""A retraining pipeline on the handwritten digits that ship inside scikit-learn.

prepare (Job) -> train (PyTorchJob, two workers) -> evaluate (Job) -> gate -> publish (Job). `make demo` runs it.
Each task is an ordinary workload: its image holds the programs named in `command`, and all of them share one volume.
"""

from __future__ import annotations

from airflow.sdk import DAG, Param, task

from airflow_mlxp import MLXPJobOperator, MLXPPyTorchJobOperator

RUN = "/data/runs/{{ run_id }}"
VOLUMES = {"/data": "demo-data"}

with DAG(
    "retrain_digits",
    schedule=None,
    tags=["mlxp", "demo"],
    params={
        "epochs": Param(30, type="integer", minimum=1, description="passes over the training images"),
        "minimum_accuracy": Param(0.90, type="number", minimum=0, maximum=1, description="below this nothing is published"),
    },
    doc_md=__doc__,
) as dag:
    prepare = MLXPJobOperator(
        task_id="prepare",
        image="demo/digits:1",
        command=["digits-prepare"],
        args=["--output", f"{RUN}/data"],
        cpu=1,
        memory="1Gi",
        volumes=VOLUMES,
    )

    train = MLXPPyTorchJobOperator(
        task_id="train",
        image="demo/digits-train:1",
        command=["digits-train"],
        args=["--data", f"{RUN}/data/train.npz", "--output", f"{RUN}/model", "--epochs", "{{ params.epochs }}"],
        workers=2,
        cpu=1,
        memory="2Gi",
        volumes=VOLUMES,
    )

    evaluate = MLXPJobOperator(
        task_id="evaluate",
        image="demo/digits:1",
        command=["digits-evaluate"],
        args=["--data", f"{RUN}/data/test.npz", "--model", f"{RUN}/model/weights.npz"],
        cpu=1,
        memory="1Gi",
        volumes=VOLUMES,
    )

    @task.short_circuit
    def gate(result: dict[str, float], minimum: str) -> bool:
        """Let the pipeline go on only with a model that is good enough."""
        print(f"accuracy {result['accuracy']:.4f}, at least {float(minimum):.2f} is asked for")
        return result["accuracy"] >= float(minimum)

    publish = MLXPJobOperator(
        task_id="publish",
        image="demo/digits:1",
        command=["digits-publish"],
        args=["--model", f"{RUN}/model/weights.npz", "--registry", "/data/models", "--version", "{{ run_id }}"],
        cpu=1,
        memory="1Gi",
        volumes=VOLUMES,
    )

    prepare >> train >> evaluate
    gate(evaluate.output, "{{ params.minimum_accuracy }}") >> publish


if __name__ == "__main__":
    dag.test()
