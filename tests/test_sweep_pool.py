"""The processes of sweeps are those of joblib, which can go on with them."""

from conftest import scenario
from joblib import Parallel, delayed

import lockstep


def test_joblib_can_follow_a_sweep() -> None:
    assert len(lockstep.sweep(scenario(sweep={"cluster.workers": [1, 2]}), jobs=2)) == 2
    assert Parallel(n_jobs=2)(delayed(abs)(number) for number in (-1, 2)) == [1, 2]
