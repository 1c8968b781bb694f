"""Memory of large vectors that is used again."""

import pytest
import torch

from lockstep.workloads.heap import LARGEST
from lockstep.workloads.spare import Spare


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_vector_lies_where_one_lay_to_which_nothing_refers(dtype: torch.dtype) -> None:
    like = torch.empty(LARGEST // dtype.itemsize, dtype=dtype)
    spare = Spare(like)
    first = spare.vector()
    assert (first.shape, first.dtype, first.data_ptr() % 64) == (like.shape, like.dtype, 0)
    part, where = first[5:7].fill_(3), first.data_ptr()
    del first
    second = spare.vector()
    assert second.data_ptr() != where
    assert part.tolist() == [3, 3]
    del part
    third = spare.vector()
    assert third.data_ptr() == where
    assert second.data_ptr() != where


def test_small_vectors_are_the_heap_s() -> None:
    assert Spare(torch.zeros(3)).vector().shape == (3,)
