"""Quantities."""

from decimal import Decimal

import pytest

from airflow_mlxp import quantity
from airflow_mlxp.errors import InvalidArgument


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (4, "4"), (0.5, "0.5"), ("500m", "0.5"), ("16Gi", str(16 * 2**30)), ("1e3", "1000"), ("1E3", "1000"), ("2E", "2e18"),
        ("1.5G", "1500000000"), (".5", "0.5"), ("5.", "5"),
        ("-1", "-1"), ("100n", "1e-7"), ("7Ki", "7168"), (" 1 ", "1"), ("1E-2", "0.01"),
    ],
)  # fmt: skip
def test_parse(value, number):
    assert quantity.parse(value, "cpu") == Decimal(number)


@pytest.mark.parametrize(
    "value", ["", "four", "16 Gi", "16gb", "1K", "Gi", "1e", "1e999", "٣", True, None, [], float("nan"), float("inf")]
)
def test_what_is_no_quantity_is_refused_by_the_arguments_name(value):
    with pytest.raises(InvalidArgument, match="memory="):
        quantity.parse(value, "memory")


@pytest.mark.parametrize(("left", "right", "result"), [("1Gi", "1024Mi", 0), ("1G", "1Gi", -1), (2, "1500m", 1)])
def test_compare(left, right, result):
    assert quantity.compare(left, right, "memory") == result


@pytest.mark.parametrize(
    ("value", "wire"), [(4, "4"), (0.5, "500m"), (1.25, "1250m"), ("500m", "500m"), ("4", "4"), (2.0, "2"), (0.1, "100m")]
)
def test_cpu(value, wire):
    assert quantity.cpu(value) == wire


@pytest.mark.parametrize("value", [0, -1, 0.0001, "1u"])
def test_cpu_that_kubernetes_can_not_count(value):
    with pytest.raises(InvalidArgument, match="cpu="):
        quantity.cpu(value)


@pytest.mark.parametrize(
    ("value", "wire"), [("16Gi", "16Gi"), (2**30, "1073741824"), ("1G", "1G"), (1.5e9, "1500000000"), (1e16, "10000000000000000")]
)
def test_memory(value, wire):
    assert quantity.memory(value) == wire


@pytest.mark.parametrize("value", [16, "16", "512m", 0])
def test_memory_without_its_unit_is_refused(value):
    with pytest.raises(InvalidArgument, match="give the unit"):
        quantity.memory(value)


@pytest.mark.parametrize(("value", "number"), [(2, 2), ("2", 2), (" 2 ", 2)])
def test_whole(value, number):
    assert quantity.whole(value, "workers", minimum=1) == number


@pytest.mark.parametrize("value", [0, -1, 1.0, "two", "", True, None, "1.5"])
def test_whole_refuses(value):
    with pytest.raises(InvalidArgument, match=r"workers=.*at least 1"):
        quantity.whole(value, "workers", minimum=1)
