"""The program of simgrid_async.cpp in Python, for where no C++ compiler is: same arguments, same output."""

import sys
import time
from array import array
from functools import partial
from pathlib import Path

from simgrid import Actor, Engine, LinkInRoute, Mailbox, NetZone, this_actor


def work(rank: int, inbox: Mailbox, mine: Mailbox, nbytes: int, seconds: array) -> None:
    inbox.put(rank, 0)  # a pull
    mine.get()
    for duration in seconds:
        this_actor.sleep_for(duration)
        inbox.put(rank, nbytes)  # a push
        mine.get()


def serve(inbox: Mailbox, mailboxes: list[Mailbox], nbytes: int, messages: int) -> None:
    for _ in range(messages):
        rank = inbox.get()
        mailboxes[rank].put_init(rank, nbytes).detach()


def main() -> None:
    engine = Engine(sys.argv)
    words = (word for word in sys.argv[1:] if not word.startswith("--"))
    workers, shards, steps, nbytes, bandwidth, latency, file = words
    assert shards == "0", "only simgrid_async.cpp has shards"
    count, each = int(workers), int(steps)
    seconds = array("d", Path(file).read_bytes())

    star, hosts = NetZone.create_star_zone("star"), []
    for rank in range(count + 1):
        up = star.create_link(f"{rank} up", float(bandwidth)).set_latency(float(latency)).seal()
        down = star.create_link(f"{rank} down", float(bandwidth)).set_latency(0.0).seal()
        host = star.create_host(str(rank), 1e9).seal()
        star.add_route(host.netpoint, None, None, None, [LinkInRoute(up)], False)
        star.add_route(None, host.netpoint, None, None, [LinkInRoute(down)], False)
        hosts.append(host)
    star.seal()

    *mailboxes, inbox = [Mailbox.by_name(str(rank)) for rank in range(count + 1)]
    server = partial(serve, inbox, mailboxes, int(nbytes), count * (each + 1))
    inbox.set_receiver(Actor.create("server", hosts[count], server))
    for rank, mine in enumerate(mailboxes):
        durations = seconds[rank * each : (rank + 1) * each]
        Actor.create("worker", hosts[rank], partial(work, rank, inbox, mine, int(nbytes), durations))

    start = time.process_time()
    engine.run()
    print(Engine.clock, time.process_time() - start)


if __name__ == "__main__":
    main()
