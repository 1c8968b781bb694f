from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from lockstep.scenarios.units import _USUAL, Bandwidth, Duration, FlopRate, PositiveDuration, Size, _by_pint

ADAPTERS = {kind: TypeAdapter(kind) for kind in (Bandwidth, Duration, FlopRate, PositiveDuration, Size)}


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Duration, "2 s", 2.0),
        (Duration, "30 ms", 0.03),
        (Duration, "100 us", 1e-4),
        (Duration, "3 µs", 3e-6),
        (Duration, "3 μs", 3e-6),
        (Duration, "7ns", 7e-9),
        (Duration, "2 min", 120.0),
        (Duration, "1.5 h", 5400.0),
        (Duration, "0 s", 0.0),
        (Duration, "1_000 ms", 1.0),
        (Bandwidth, "8 bit/s", 1.0),
        (Bandwidth, "10 Gbit/s", 1.25e9),
        (Bandwidth, "10 Gbps", 1.25e9),
        (Bandwidth, "5 B/s", 5.0),
        (Bandwidth, "1 MB/s", 1e6),
        (Bandwidth, "1 MiB/s", 2.0**20),
        (Bandwidth, "1e9 B/s", 1e9),
        (Size, "3 B", 3.0),
        (Size, "3 kB", 3e3),
        (Size, "25 MB", 25e6),
        (Size, "8 MiB", 8 * 2.0**20),
        (Size, "12 bit", 1.5),
        (FlopRate, "312 TFLOP/s", 312e12),
        (FlopRate, "1 GFLOPS", 1e9),
    ],
)
def test_a_quantity_is_a_float_in_base_units(kind: Any, text: str, value: float) -> None:
    assert ADAPTERS[kind].validate_python(text) == value


@pytest.mark.parametrize(("base", "unit"), [(base, unit) for base, units in _USUAL.items() for unit in units])
@pytest.mark.parametrize("number", ["1", "0.1", "-3", "3.3e-7", "1_000", "24.481234567890123456"])
def test_the_table_of_usual_units_says_what_pint_says(base: str, unit: str, number: str) -> None:
    assert float(Decimal(number) * _USUAL[base][unit]) == _by_pint(number, unit, base)


@pytest.mark.parametrize(
    ("kind", "value", "says"),
    [
        (Bandwidth, 5, "no unit"),
        (Bandwidth, 5.0, "no unit"),
        (Bandwidth, True, "is not a bandwidth"),
        (Bandwidth, "5", "is not a bandwidth"),
        (Bandwidth, "5 Hz", "is not a bandwidth"),  # with pint's own registry this is 5 bit/s
        (Bandwidth, "5 B", "is not a bandwidth"),
        (Bandwidth, "5 mbit/s", "is not a bandwidth"),  # a thousandth of a bit
        (Bandwidth, "5 KB/s", "is not a bandwidth"),  # 1000 or 1024?
        (Bandwidth, "0 B/s", "above 0"),
        (Bandwidth, "-1 B/s", "above 0"),
        (Bandwidth, "nan B/s", "is not a bandwidth"),
        (Bandwidth, "1e999 B/s", "above 0"),
        (Bandwidth, None, "null is not a bandwidth"),
        (Bandwidth, "9**9**9**9 B/s", "is not a bandwidth"),
        (Bandwidth, "1e-300 bit/s", "above 0, from 1 bit/s to 1e6 TB/s, such as '10 Gbit/s'"),
        (Bandwidth, "1e300 bit/s", "from 1 bit/s to 1e6 TB/s"),
        (Duration, "-1 s", "0 or more"),
        (Duration, "5e-324 s", "0 or more, from 1e-6 ns to 1e9 s, such as '50 us'"),
        (Duration, "1e10 s", "from 1e-6 ns to 1e9 s"),
        (Size, "1e-9 B", "0 or more, from 1 B to 1e6 TB"),
        (FlopRate, "1e-300 FLOP/s", "from 1 FLOP/s to 1e12 TFLOP/s"),
        (Duration, "1e999999999999999999999 s", "is not a duration"),
        (Duration, "5 bit/s", "is not a duration"),
        (PositiveDuration, "0 s", "above 0"),
        (Size, "5 s", "is not a size"),
        (FlopRate, "5 GB/s", "is not a rate of work"),
        (FlopRate, "5 FLOP", "is not a rate of work"),
    ],
)
def test_anything_else_is_refused_with_an_example(kind: Any, value: object, says: str) -> None:
    with pytest.raises(ValidationError) as caught:
        ADAPTERS[kind].validate_python(value)
    (error,) = caught.value.errors()
    assert says in error["msg"]
    assert "such as '" in error["msg"]


@pytest.mark.parametrize("kind", ADAPTERS)
@given(data=st.data())
def test_what_is_written_reads_back_as_the_same_float(kind: Any, data: st.DataObject) -> None:
    adapter, (quantity,) = ADAPTERS[kind], kind.__metadata__
    value = data.draw(st.floats(*quantity.bounds))
    text = adapter.dump_python(value)
    assert isinstance(text, str)
    assert adapter.validate_python(text) == value


def test_the_json_schema_of_a_quantity_is_a_string_with_an_example() -> None:
    schema = ADAPTERS[Bandwidth].json_schema()
    assert schema["type"] == "string"
    assert schema["examples"] == ["10 Gbit/s"]
    assert "bandwidth" in schema["description"]
