"""`make demo`, `make up` and `make down`: the retraining pipeline on the embedded platform, in a real Airflow."""

from __future__ import annotations

import argparse
import asyncio
import shlex
import signal
import sys
import time
from pathlib import Path

import httpx
import stack as stacks
from progress import follow_run, rank_of, text_of
from rich.console import Console
from standalone import AirflowAPI, StackError

DAG_ID = "retrain_digits"
console = Console()


def main() -> None:
    """Run the command that is asked for; exit code 0 when it did what it promises."""
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("command", choices=("run", "up", "down"))
    parser.add_argument("--trainer", choices=("auto", "torch", "numpy"), default="auto", help="what trains the model")
    parser.add_argument("--dir", type=Path, default=stacks.ROOT / ".demo", help="folder for everything that the demo writes")
    args = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        code = {"run": run, "up": up, "down": down}[args.command](args.dir.resolve(), args.trainer)
    except StackError as error:
        console.print(str(error), style="red", markup=False, highlight=False, soft_wrap=True)
        code = 1
    except httpx.HTTPError as error:
        text = f"A request to Airflow failed: {type(error).__name__}: {error}"
        console.print(text, style="red", markup=False, highlight=False, soft_wrap=True)
        code = 1
    except KeyboardInterrupt:
        console.print("stopped", style="yellow")
        code = 130
    sys.exit(code)


def say(text: str) -> None:
    """Print as it is, never cut or coloured: it may be copied."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def tell(text: str) -> None:
    """One line of progress."""
    say(f"• {text}")


def up(folder: Path, trainer: str) -> int:
    """Start all and leave it running."""
    with stacks.alone(folder):
        running = reusable(folder)
        stack = running or asyncio.run(start(folder, trainer))
    if running:
        tell("it runs already")
    airflow = stack.airflow
    say(f"\nAirflow   {airflow.url}   user admin   password {airflow.password}")
    say(f"DAGs      {stacks.DAGS} (yours can stand there too)")
    say(f"kubectl   export KUBECONFIG={shlex.quote(str(stack.kubeconfig))}")
    say("run       make demo\nstop      make down")
    return 0


def reusable(folder: Path) -> stacks.Stack | None:
    """The stack that `make up` left running; says so when it has been left, but doesn't answer."""
    stack = asyncio.run(stacks.usable(folder))
    left = stacks.load(folder)
    if stack is None and left is not None:
        tell("what ran here before does not answer or was never finished: starting anew")
    return stack


async def start(folder: Path, trainer: str) -> stacks.Stack:
    """Start a stack that stays."""
    stack = await stacks.up(folder, tell, trainer=trainer)
    stacks.keep(stack)
    return stack


def down(folder: Path, _: str) -> int:
    """Stop what ``up`` started."""
    if not stacks.down(folder, tell):
        tell("nothing runs")
    return 0


def run(folder: Path, trainer: str) -> int:
    """Run the pipeline once, on the stack of ``up`` if it runs, else on one that ends with the run."""
    with stacks.alone(folder):
        running = reusable(folder)
        if running is None:
            try:
                return asyncio.run(run_pipeline(folder, None, trainer))
            finally:
                stacks.down(folder, tell)
    return asyncio.run(run_pipeline(folder, running, trainer))


async def run_pipeline(folder: Path, running: stacks.Stack | None, trainer: str) -> int:
    """Trigger the DAG, follow it, print what came out of it."""
    began = time.monotonic()
    stack = running or await stacks.up(folder, tell, trainer=trainer)
    async with AirflowAPI(stack.airflow) as api:
        await api.wait_for_dag(DAG_ID)
        run_id = await api.trigger(DAG_ID)
        tell(f"run {run_id}")
        tell(f"watch it at {stack.airflow.url}/dags/{DAG_ID} (user admin, password {stack.airflow.password})")
        state = await follow_run(api, str(stack.kubeconfig), DAG_ID, run_id, console)
        result = await api.xcom(DAG_ID, run_id, "evaluate") or {}
        published = await api.xcom(DAG_ID, run_id, "publish") or {}
        if state != "success":
            await tell_failure(api, run_id)
            return 1
    console.print(f"\nThe run succeeded after {time.monotonic() - began:.0f} s.", highlight=False)
    console.print(
        f"accuracy {result.get('accuracy')} on {result.get('images')} held-out images", style="bold green", highlight=False
    )
    if published:
        say(f"model {stack.volume / published['path']}")
    else:
        console.print("the gate stopped the pipeline: nothing was published", style="yellow")
    return 0


async def tell_failure(api: AirflowAPI, run_id: str) -> None:
    """Print the end of each failed task's log, without what Airflow says of itself."""
    for task in await api.tasks(DAG_ID, run_id):
        if task["state"] == "failed":
            entries = await api.log(DAG_ID, run_id, task["task_id"], try_number=max(task["try_number"], 1))
            console.print(f"\n{task['task_id']} failed:", style="red", highlight=False)
            for entry in [entry for entry in entries if rank_of(entry)][-25:]:
                for line in text_of(entry).splitlines():
                    say(f"  {line}")


if __name__ == "__main__":
    main()
