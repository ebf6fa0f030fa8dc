"""Entry point of the ``airflow-mlxp`` command."""

from __future__ import annotations

import typer

from airflow_mlxp.cli import follow, local

app = typer.Typer(name="airflow-mlxp", no_args_is_help=True, help="Jobs and PyTorchJobs of an ML platform, from the shell.")
app.add_typer(local.app, name="local", help="The embedded platform: a Kubernetes API and a node on this machine.")
app.command("follow")(follow.follow)


def main() -> None:
    """Run the command line."""
    app()
