"""What Airflow reads of the provider."""

import json
import subprocess
import sys
from importlib.metadata import entry_points
from importlib.resources import files

import jsonschema

from airflow_mlxp import __version__, connection
from airflow_mlxp.provider_info import get_provider_info

AIRFLOW = files("airflow")


def test_it_matches_airflows_schema() -> None:
    schema = json.loads(AIRFLOW.joinpath("provider_info.schema.json").read_text())
    jsonschema.validate(get_provider_info(), schema)


def test_the_form_matches_airflows_schema() -> None:
    schema = json.loads(AIRFLOW.joinpath("provider.yaml.schema.json").read_text())
    kind = schema["properties"]["connection-types"]["items"]
    jsonschema.validate(get_provider_info()["connection-types"][0], {**kind, "definitions": schema.get("definitions", {})})


def test_every_named_module_exists_and_options_have_all_keys() -> None:
    info = get_provider_info()
    assert info["package-name"] == "airflow-mlxp"
    assert info["versions"] == [__version__]
    for group in ("operators", "hooks", "triggers"):
        for entry in info[group]:
            for module in entry["python-modules"]:
                assert files("airflow_mlxp").joinpath(*module.split(".")[1:-1], module.split(".")[-1] + ".py").is_file()
    for option in info["config"]["mlxp"]["options"].values():
        assert {"description", "version_added", "type", "default", "example"} <= set(option)


def test_secret_fields_are_password_fields() -> None:
    fields = connection.form_fields()
    assert {name for name, field in fields.items() if field["schema"].get("format") == "password"} == {
        "kube_config",
        "client_key",
    }


def test_it_is_found_by_entry_point_and_imports_nothing_of_airflow() -> None:
    (found,) = (point for point in entry_points(group="apache_airflow_provider") if point.value.startswith("airflow_mlxp."))
    code = f"import sys; from {found.module} import {found.attr} as f; f(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not [name for name in loaded if name.split(".")[0] == "airflow"]
