"""``airflow-mlxp follow``: what it prints, and that nothing which the cluster says can harm a terminal."""

import asyncio

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from airflow_mlxp.cli import output
from airflow_mlxp.cli.follow import follow
from airflow_mlxp.cluster import access
from airflow_mlxp.cluster.rest import Client
from airflow_mlxp.models import LogLine, LogLines
from airflow_mlxp.workloads import get
from tests.support.platform import a_job, running_platform

app = typer.Typer()
app.command()(follow)


@pytest.fixture
async def platform(tmp_path):
    async with running_platform(tmp_path / "platform") as running:
        yield running


async def run(platform, *arguments):
    """The command in a thread of its own, since it brings its own event loop."""
    return await asyncio.to_thread(CliRunner().invoke, app, [*arguments, "--kubeconfig", str(platform.kubeconfig)])


async def create(platform, *command):
    kind = get("Job")
    async with Client(access.from_kubeconfig(path=str(platform.kubeconfig))) as client:
        await client.create(kind.api, platform.namespace, a_job("train", *command))


@pytest.mark.platform
async def test_prints_states_and_lines_and_ends_with_the_workload(platform):
    await create(platform, "printf 'one\\033[31m\\n'")
    result = await run(platform, "job", "train")
    assert result.exit_code == 0, result.output
    assert "one\\x1b[31m" in result.output
    assert result.output.rstrip().endswith("* finished: success")


@pytest.mark.platform
async def test_a_failure_ends_with_the_diagnosis_and_code_1(platform):
    await create(platform, "exit 7")
    result = await run(platform, "Job", "train", "--no-logs")
    assert result.exit_code == 1
    assert "exit code 7" in result.output


@pytest.mark.platform
@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("job", "absent"), 'jobs.batch "absent" not found'), (("Cron", "train"), "expected Job or PyTorchJob")],
)
async def test_what_can_not_be_followed_is_one_line_and_code_2(platform, arguments, message):
    result = await run(platform, *arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


@given(st.text())
def test_nothing_that_is_printed_moves_the_cursor(text):
    shown = output.escape(text)
    assert all(char == "\t" or char.isprintable() for char in shown)
    assert output.escape(shown) == shown


@given(st.text(alphabet=st.characters(exclude_categories=("C", "Z"))))
def test_text_of_any_script_stays_as_it_is(text):
    assert output.escape(text) == text


def test_a_replicas_name_is_no_more_trusted_than_its_lines():
    event = LogLines(replica="w\x1b", pod="p", container="c", lines=(LogLine(time="", text="a\rb"),))
    assert list(output.lines_of(event)) == ["[w\\x1b] a\\rb"]
