"""The public names."""

import ast
import inspect

import pytest

import airflow_mlxp


def _type_checking_imports() -> set[str]:
    tree = ast.parse(inspect.getsource(airflow_mlxp))
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    return {alias.name for block in blocks for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}


def test_lists_of_names_agree() -> None:
    assert set(airflow_mlxp._EXPORTS) | {"__version__"} == set(airflow_mlxp.__all__) == set(dir(airflow_mlxp))
    assert airflow_mlxp.__all__ == sorted(airflow_mlxp.__all__)
    assert set(airflow_mlxp._EXPORTS) <= _type_checking_imports()


def test_a_wrong_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="MLXPJobOperater"):
        _ = airflow_mlxp.MLXPJobOperater
