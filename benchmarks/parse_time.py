"""What our operators cost a DAG file over ``airflow.sdk`` alone, with the provider's Job operator measured in the same run.

Each measurement is a fresh process: one imports ``airflow.sdk`` and makes a DAG, its twin does so and imports operators too.
The difference of such a pair is the cost; pairs alternate, and the median of 15 is reported. Exits 1 beyond the budget.
"""

from __future__ import annotations

import compileall
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PAIRS = 15
CPU_BUDGET_MS, MEMORY_BUDGET_MB = 50.0, 5.0

BASE = """
from airflow.sdk import DAG, BaseOperator
with DAG("d") as dag:
    BaseOperator(task_id="a")
"""
OURS = """
from airflow_mlxp import Elastic, MLXPJobOperator, MLXPPyTorchJobOperator
with dag:
    MLXPJobOperator(task_id="b", image="i", command=["python", "x.py"], args=["{{ ds }}"], cpu=4, memory="16Gi")
    MLXPPyTorchJobOperator(task_id="c", image="i", workers=2, gpus=8, elastic=Elastic(max_restarts=3))
"""
PROVIDER = """
from airflow.providers.cncf.kubernetes.operators.job import KubernetesJobOperator
with dag:
    KubernetesJobOperator(task_id="k", image="i", cmds=["python", "x.py"])
"""
MEASURE = """
import json, resource, sys
usage = resource.getrusage(resource.RUSAGE_SELF)
heavy = sorted({name.split(".")[0] for name in sys.modules} & {"aiohttp", "kubernetes", "kubernetes_asyncio", "fastapi"})
print(json.dumps([(usage.ru_utime + usage.ru_stime) * 1000, usage.ru_maxrss / 1024, heavy]))
"""


def measure(code: str, home: str) -> tuple[float, float, list[str]]:
    """CPU milliseconds, peak resident megabytes and heavy modules of one process."""
    environment = {**os.environ, "AIRFLOW_HOME": home, "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    answer = subprocess.run([sys.executable, "-c", code + MEASURE], env=environment, capture_output=True, text=True, check=True)
    cpu, memory, heavy = json.loads(answer.stdout.splitlines()[-1])
    return cpu, memory, heavy


def compile_bytecode() -> None:
    """Bring our bytecode up to date, as an installer does: an edited checkout would be compiled in each process."""
    compileall.compile_dir(Path(__file__).resolve().parents[1] / "airflow_mlxp", quiet=1)


def compare(code: str, home: str, pairs: int) -> tuple[float, float, list[str]]:
    """Median cost over the base in alternating pairs."""
    cpu, memory, heavy = [], [], []
    for _ in range(pairs):
        base, extended = measure(BASE, home), measure(BASE + code, home)
        cpu.append(extended[0] - base[0])
        memory.append(extended[1] - base[1])
        heavy = [name for name in extended[2] if name not in base[2]]
    return statistics.median(cpu), statistics.median(memory), heavy


def main() -> int:
    """Print both rows; 1 when ours exceeds the budget."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS
    compile_bytecode()
    with tempfile.TemporaryDirectory() as home:
        measure(BASE + OURS + PROVIDER, home)  # writes Airflow's configuration file
        rows = {"airflow-mlxp": compare(OURS, home, pairs), "provider's KubernetesJobOperator": compare(PROVIDER, home, 3)}
    for name, (cpu, memory, heavy) in rows.items():
        print(f"{name:34} {cpu:8.1f} ms CPU {memory:7.1f} MB  loads {', '.join(heavy) or 'no client library'}")
    cpu, memory, heavy = rows["airflow-mlxp"]
    within = cpu <= CPU_BUDGET_MS and memory <= MEMORY_BUDGET_MB and not heavy
    print(f"budget {CPU_BUDGET_MS:g} ms, {MEMORY_BUDGET_MB:g} MB: {'kept' if within else 'EXCEEDED'} (median of {pairs} pairs)")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
