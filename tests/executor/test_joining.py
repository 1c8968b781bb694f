"""Who is where under torchrun: servers are spread over the hosts."""

from itertools import chain, product

from lockstep.executor.joining import placed


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
