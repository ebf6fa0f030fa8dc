"""``airflow-mlxp local up|down|status``: the embedded platform from the shell."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from airflow_mlxp.local.options import Options
    from airflow_mlxp.local.state import Record, StateFolder

app = typer.Typer(no_args_is_help=True)

_DOWN, _UNUSABLE = 1, 2

_Folder = Annotated[
    Path | None,
    typer.Option("--dir", help="Folder of the platform; $XDG_STATE_HOME/airflow-mlxp/local if absent.", file_okay=False),
]


class Output(StrEnum):
    """Forms of output."""

    TEXT = "text"
    JSON = "json"


@app.command()
def up(
    *,
    folder: _Folder = None,
    foreground: Annotated[bool, typer.Option("--foreground", help="Stay in this shell until ctrl-C.")] = False,
    project: Annotated[list[str] | None, typer.Option(help="Project to have a namespace p-PROJECT for [default: demo].")] = None,
    volume: Annotated[
        list[str] | None, typer.Option(help="NAME[=FOLDER]: a volume claim in each project, and the folder with its data.")
    ] = None,
    image: Annotated[list[str] | None, typer.Option(help="NAME=FOLDER: run this image with FOLDER first on PATH.")] = None,
    images: Annotated[Path | None, typer.Option(help="YAML or JSON file with an image table.", exists=True)] = None,
    gpus: Annotated[int, typer.Option(help="GPUs of the node, as far as pods are scheduled.", min=0)] = 0,
    zone: Annotated[list[str] | None, typer.Option(help="GPU zone that the node belongs to; absent: every zone.")] = None,
) -> None:
    """Start the platform and print how to use it. Started twice, the second one says that it runs.

    Exit code 0: it is up; 2: it can't be started.
    """
    from airflow_mlxp.local.options import Options

    options = Options(
        projects=tuple(project or ("demo",)),
        volumes=tuple(_absolute(item) for item in volume or ()),
        images=tuple(_absolute(item) for item in image or ()),
        image_table=str(images.absolute()) if images else "",
        gpus=gpus,
        zones=tuple(zone or ()),
    )
    state = _state(folder)
    record = state.running()
    if record is not None:
        typer.echo(f"The platform runs already (process {record.pid}).")
        if state.options.is_file() and Options.from_json(state.options.read_text(encoding="utf-8")) != options:
            typer.echo("It was started with other options: `airflow-mlxp local down` first to change them.")
        _explain(record)
        return
    _start(state, options, foreground=foreground)


@app.command()
def down(*, folder: _Folder = None) -> None:
    """Stop the platform and every process of its pods, and wait until they are gone. Nothing else is touched."""
    from airflow_mlxp.local import background

    typer.echo("The platform is stopped." if background.stop(_state(folder)) else "No platform is running.")


@app.command()
def status(
    *, folder: _Folder = None, output: Annotated[Output, typer.Option("--output", "-o", help="Form of the output.")] = Output.TEXT
) -> None:
    """Say whether the platform is up. Exit code 0: up; 1: down."""
    import json

    state = _state(folder)
    record = state.running()
    if output is Output.JSON:
        typer.echo(json.dumps({"running": record is not None, "folder": str(state.path), **(asdict(record) if record else {})}))
    elif record is None:
        typer.echo("No platform is running.")
    else:
        typer.echo(f"The platform runs (process {record.pid}) at {record.server}")
        _explain(record)
    if record is None:
        raise typer.Exit(_DOWN)


def _start(state: StateFolder, options: Options, *, foreground: bool) -> None:
    import asyncio

    from airflow_mlxp.errors import MLXPError
    from airflow_mlxp.local import background, daemon

    try:
        if foreground:
            state.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            state.options.write_text(options.to_json(), encoding="utf-8")
            asyncio.run(daemon.run(state, options, ready=_explain))
            typer.echo("The platform is stopped.")
        else:
            typer.echo("Starting the platform ...", err=True)
            _explain(background.start(state, options))
    except (MLXPError, OSError) as error:
        typer.echo(f"airflow-mlxp local up: {error}", err=True)
        raise typer.Exit(_UNUSABLE) from None


def _state(folder: Path | None) -> StateFolder:
    from airflow_mlxp.local.state import StateFolder, default_folder

    return StateFolder((folder or default_folder()).expanduser().absolute())


def _absolute(option: str) -> str:
    """``NAME=FOLDER`` with the folder made absolute: the platform's process has another working directory."""
    name, separator, path = option.partition("=")
    return f"{name}={Path(path).expanduser().absolute()}" if separator and path else option


def _explain(record: Record) -> None:
    import shlex

    from airflow_mlxp.local.state import default_folder

    typer.echo(f"kubeconfig: {record.kubeconfig}")
    typer.echo(f"namespaces: {', '.join(record.namespaces)}")
    typer.echo("Next:")
    typer.echo(f"  export KUBECONFIG={shlex.quote(record.kubeconfig)}")
    typer.echo("  kubectl get jobs,pytorchjobs,pods")
    folder = Path(record.kubeconfig).parent
    other = "" if folder == default_folder() else f" --dir {shlex.quote(str(folder))}"
    typer.echo(f"  airflow-mlxp local down{other}")
