"""Which transport should carry messages: small and large push-pulls of W workers with one server.

Run: python benchmarks/transports.py. Prints a table; the decision it led to is in docs/design.md.
"""

import multiprocessing as mp
import time

import torch
import torch.distributed as dist
import zmq

WORKERS = 2
CASES = {"64 B": (64, 2000), "10 MB": (10_000_000, 20)}


def zmq_push_pull(rank: int, nbytes: int, count: int, base: int) -> float:
    """Every node binds one PULL socket; a PUSH socket to each peer."""
    context = zmq.Context()
    inbox = context.socket(zmq.PULL)
    inbox.bind(f"tcp://127.0.0.1:{base + rank}")
    out = {}
    for peer in range(WORKERS + 1):
        out[peer] = context.socket(zmq.PUSH)
        out[peer].connect(f"tcp://127.0.0.1:{base + peer}")
    return echo(
        rank,
        nbytes,
        count,
        lambda to, frames: out[to].send_multipart(frames, copy=nbytes < 65536),
        lambda: inbox.recv_multipart(copy=False),
    )


def zmq_router_dealer(rank: int, nbytes: int, count: int, base: int) -> float:
    """The server binds a ROUTER; every worker connects a DEALER."""
    context = zmq.Context()
    if rank == 0:
        socket = context.socket(zmq.ROUTER)
        socket.bind(f"tcp://127.0.0.1:{base}")
        return echo(
            rank,
            nbytes,
            count,
            lambda to, frames: socket.send_multipart([bytes([to]), *frames], copy=nbytes < 65536),
            lambda: socket.recv_multipart(copy=False)[1:],
        )
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.IDENTITY, bytes([rank]))
    socket.connect(f"tcp://127.0.0.1:{base}")
    return echo(
        rank,
        nbytes,
        count,
        lambda to, frames: socket.send_multipart(frames, copy=nbytes < 65536),
        lambda: socket.recv_multipart(copy=False),
    )


def echo(rank: int, nbytes: int, count: int, send, receive) -> float:
    body = torch.zeros(nbytes // 4)
    if rank == 0:
        for _ in range(count * WORKERS + WORKERS):
            header, data = receive()
            torch.frombuffer(bytearray(data.buffer) if nbytes < 65536 else data.buffer, dtype=torch.float32)
            send(bytes(header)[0], [header, memoryview(body.numpy())])
        time.sleep(0.5)
        return 0.0
    start = 0.0
    for turn in range(count + 1):
        if turn == 1:
            start = time.monotonic()
        send(0, [bytes([rank]), memoryview(body.numpy())])
        receive()
    return time.monotonic() - start


def gloo(rank: int, nbytes: int, count: int, base: int) -> float:
    """torch.distributed point-to-point: receive from anyone, answer the sender."""
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{base}", rank=rank, world_size=WORKERS + 1)
    body, start = torch.zeros(nbytes // 4), 0.0
    if rank == 0:
        for _ in range(count * WORKERS + WORKERS):
            dist.send(body, dist.recv(body))
        time.sleep(0.5)
        return 0.0
    for turn in range(count + 1):
        if turn == 1:
            start = time.monotonic()
        dist.send(body, 0)
        dist.recv(body, 0)
    return time.monotonic() - start


def run(transport, rank: int, nbytes: int, count: int, base: int, out) -> None:
    import warnings

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    out.put(transport(rank, nbytes, count, base))


def main() -> None:
    context, base = mp.get_context("fork"), 29500
    print(f"{'transport':20} {'message':>8} {'push-pulls/s':>13} {'GB/s':>7}   ({WORKERS} workers, 1 server)")
    for label, (nbytes, count) in CASES.items():
        for transport in (gloo, zmq_push_pull, zmq_router_dealer):
            rates = []
            for _ in range(3):
                base += WORKERS + 2
                out = context.Queue()
                nodes = [
                    context.Process(target=run, args=(transport, rank, nbytes, count, base, out))
                    for rank in range(WORKERS + 1)
                ]
                for node in nodes:
                    node.start()
                seconds = max(out.get() for _ in nodes)
                for node in nodes:
                    node.join()
                rates.append(count * WORKERS / seconds)
            rate = sorted(rates)[1]
            print(f"{transport.__name__:20} {label:>8} {rate:13.0f} {2 * rate * nbytes / 1e9:7.2f}")


if __name__ == "__main__":
    main()
