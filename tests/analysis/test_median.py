import numpy as np
import pytest

from lockstep.analysis.median import median


@pytest.mark.parametrize("shape", [(1,), (2,), (9,), (10,), (3, 1), (5, 4), (5, 7)])
def test_it_has_the_bits_of_numpys(shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(len(shape))
    for values in (random.lognormal(0, 9, shape), random.integers(0, 3, shape), -random.random(shape)):
        assert np.array_equal(median(values), np.median(values, axis=-1))
