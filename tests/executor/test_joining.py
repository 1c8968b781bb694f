"""Who is where under torchrun: servers are spread over the hosts."""

from itertools import chain, product

import pytest

from lockstep.executor import joining
from lockstep.executor.joining import agree, placed
from lockstep.executor.stores import HashStore
from lockstep.job.version import CODE
from lockstep.scenarios import ScenarioError
from tests.support.scenarios import scenario


def test_every_host_has_as_many_workers_but_for_one() -> None:
    for hosts, each in product(range(1, 5), range(1, 6)):
        for workers in range(1, hosts * each + 1):
            ranks = [
                [placed(workers, hosts, each, host, own) for own in range(each)] for host in range(hosts)
            ]
            assert sorted(chain(*ranks)) == list(range(hosts * each))
            at_work = [sum(rank < workers for rank in there) for there in ranks]
            assert max(at_work) - min(at_work) <= 1
            assert ranks[0][0] == 0


def test_two_hosts_of_four_gpus_have_four_workers_and_a_server_each() -> None:
    assert [placed(8, 2, 5, 0, own) for own in range(5)] == [0, 1, 2, 3, 8]
    assert [placed(8, 2, 5, 1, own) for own in range(5)] == [4, 5, 6, 7, 9]
    assert [placed(3, 1, 5, 0, own) for own in range(5)] == list(range(5))


def test_all_have_the_same_scenario() -> None:
    store = HashStore()
    agree(scenario(), store)
    agree(scenario(), store)
    told = "the scenario differs from that of another process: 'seed: 7' on .*, 'seed: 3' there; give all"
    with pytest.raises(ScenarioError, match=told):
        agree(scenario(seed=7), store)


def test_and_the_same_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what one sends another does not understand."""
    store = HashStore()
    agree(scenario(), store)
    monkeypatch.setattr(joining, "version", lambda engine: {CODE: f"another, {engine}"})
    told = r"lockstep's code differs from that of another .*: another, executor on .*, \w{12} there; install"
    with pytest.raises(ScenarioError, match=told):
        agree(scenario(), store)
