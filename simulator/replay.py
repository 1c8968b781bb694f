"""Repeats a real run in virtual time: every node is told what it was told there, in the same order.

A job that failed and went on has lives, one after the other, whose logs each begin with an entry `life`.
Each life begins with the checkpoint that the replay of those before has come to. Where a node alone began
anew while the others went on, another takes its place as soon as its log has come to that: what the others
take in of either is told by their logs.
"""

from collections import defaultdict
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf

import pandas as pd

from lockstep.analysis.entries import AGAIN, ANEW, GONE, LIFE, Entry
from lockstep.analysis.records import join
from lockstep.analysis.result import Result
from lockstep.job.ending import Ending
from lockstep.job.incarnation import FIRST, Incarnation, Saved, cut, for_everyone, saver
from lockstep.job.node import Node
from lockstep.job.plan import Plan
from lockstep.job.port import Arrival, Port
from lockstep.job.rounds import completed
from lockstep.job.snapshots import Snapshots, merged
from lockstep.simulator.engine import Progress, Simulation, no_garbage
from lockstep.simulator.events import Process
from lockstep.simulator.replayed_port import ConnectedPort, Divergence, Mail, ReplayedPort, Span
from lockstep.strategies.node import Message
from lockstep.strategies.strategy import Program
from lockstep.workloads import learning


@dataclass
class Life:
    """Of a job: what it began with, and the lives of each of its nodes in it."""

    begins: Incarnation
    spans: defaultdict[int, list[Span]] = field(default_factory=lambda: defaultdict(list))


def lives_of(interleaving: pd.DataFrame) -> list[Life]:
    """The lives of the job: one, if it was not made to fail."""
    found: dict[int, Life] = {}
    now: dict[int, Life] = {}  # of each node
    for entry in map(Entry._make, interleaving[list(Entry._fields)].itertuples(index=False)):
        begins = Incarnation(entry.peer, entry.answer, entry.version, {entry.node: entry.number})
        if entry.word != LIFE:
            life = now.setdefault(entry.node, found.setdefault(0, Life(FIRST)))
            life.spans[entry.node] = life.spans[entry.node] or [Span(FIRST)]
            life.spans[entry.node][-1].entries.append(entry)
        elif entry.kind in (AGAIN, ANEW, GONE):
            before = now[entry.node].spans[entry.node]
            before[-1].killed = True
            begins = replace(begins, rejoins=True)
            before.append(Span(begins, gone=entry.kind == GONE, anew=entry.kind == ANEW))
        else:
            life = now[entry.node] = found.setdefault(entry.peer, Life(replace(begins, steps={})))
            life.begins = replace(life.begins, steps={**life.begins.steps, **begins.steps})
            life.spans[entry.node].append(Span(begins))
    lives = [found[number] for number in sorted(found)]
    for life in lives[:-1]:
        for spans in life.spans.values():
            spans[-1].killed = True
    return lives


class Replay(Simulation):
    """A life of the job: a simulation that ends where the logs do."""

    def __init__(self, plan: Plan, life: Life, begins: Incarnation, next_version: int | None) -> None:
        """next_version: of the checkpoint that the next life goes on from; None: this is the last one."""
        self._spans = {rank: [*life.spans[rank]] for rank in range(len(plan.roles))}
        self._mail = defaultdict[int, Mail](Mail)
        self._next_version = next_version
        self._last = {rank: spans[-1] if spans else Span(FIRST) for rank, spans in self._spans.items()}
        self._wanted = {
            (by, span.begins.version)
            for rank, spans in life.spans.items()
            for span in spans[1:]
            for by in (plan.savers if span.gone else [saver(plan, rank)])
        }
        self._wanted |= {(rank, next_version) for rank in plan.savers if next_version is not None}
        self._saved: dict[tuple[int, int], Saved] = {}
        self._unread = defaultdict[tuple[int, int], list[int]](list)  # who begins with what is not saved yet
        self.replayed: dict[int, ReplayedPort] = {}  # those that stand now
        self._endings: dict[int, Ending] = {}  # of each process
        self.entries = sum(len(span.entries) for spans in life.spans.values() for span in spans)
        self._been: list[ReplayedPort] = []
        self._shown: dict[int, Snapshots] = {}  # by those who are there, where all hold the same
        super().__init__(plan, shortcuts=False, incarnation=begins)

    def stands_on(self, rank: int) -> tuple[Port, Ending]:
        """A port that follows the log of the node's next life."""
        name = f"{self.roles[rank].name} (rank {rank})"
        spans, again = self._spans[rank], rank in self.replayed
        span = spans.pop(0) if spans else Span(self.incarnation, killed=True)
        if spans:
            span.follow = partial(self._follow, rank)
        port = self.replayed[rank] = ReplayedPort(ConnectedPort(self, rank), name, span, self._mail[rank])
        self._been.append(port)
        if not span.anew:
            versions = (span.begins if again else self.incarnation).versions(self.plan)
            self._endings[rank] = Ending(self.plan, partial(self._count, rank), lambda: None, versions)
        return port, self._endings[rank]

    def _count(self, rank: int, name: str) -> int:
        return self.replayed[rank].count(name)

    def _node(self, rank: int, incarnation: Incarnation | None = None) -> Node:
        node = super()._node(rank, incarnation)
        node.keep = lambda saved: lambda: self._keep(rank, saved)
        return node

    def shown_by(self, rank: int) -> Snapshots | None:
        """As each process has its own: lives that do not meet are not in the order of virtual time."""
        if not self.owners.shown_by_all:
            return super().shown_by(rank)
        return self._shown.setdefault(rank, Snapshots(self.owners.copies * self.sizes.nbytes))

    def _keep(self, rank: int, saved: Saved) -> None:
        if (rank, saved.version) in self._wanted:
            self._saved[rank, saved.version] = saved
            for reader in self._unread.pop((rank, saved.version), ()):
                self._follow(reader)

    def _follow(self, rank: int) -> None:
        """Another node takes the place of one whose log has come to its end, unless it is gone for good."""
        begins, gone = self._spans[rank][0].begins, self._spans[rank][0].gone
        if gone and not self.plan.goes_back(rank):
            self._shown.pop(rank, None)
            return
        by = saver(self.plan, rank)
        if begins.version:
            assert by is not None
            if by != rank and (by, begins.version) not in self._saved:  # which another has yet to come to
                self._unread[by, begins.version].append(rank)
                return
            begins = replace(begins, saved={rank: self._checkpoint(by, begins.version)})
        if self.plan.goes_back(rank):
            self.back.append((rank, begins.version, self.environment.now))
            if (kept := self.snapshots.get(rank)) is not None:
                kept.go_back(begins.version, begins.saved[rank].shown if begins.saved else None)
        if gone:
            return
        if rank in self._shown and by == rank:  # what it has shown is on disk with its checkpoint
            self._shown[rank].go_back(begins.version, None)
        else:
            self._shown.pop(rank, None)
        node = self.nodes[rank] = self._node(rank, begins)
        for other in self.plan.told_of(rank) if node.rejoins else ():
            node.port.post(other, Message("join", rank))
        self.begin(node, self.plan.program(rank))

    def arrived(self, to: int, connection: int, arrival: Arrival) -> None:
        """A message is there."""
        self.replayed[to].keep(connection, arrival)

    def begin(self, node: Node, program: Program) -> Process:
        """Let a node run its program as its log says."""
        port = self.replayed[node.rank]
        port.take_in, self.inboxes[node.rank] = node.take_in, partial(port.keep, 0)
        return self.start(node.rank, port.run(program(node)), node.end)

    def count_step(self) -> None:
        """Tell how much of the log has been."""
        self.steps += 1
        if self.progress is not None and self.steps % 64 == 0:
            self.progress(sum(port.done for port in self._been) / self.entries)

    def run(self, progress: Progress | None = None) -> None:
        """Let time pass until nothing more happens. Raises Divergence if that is not the end of the log."""
        self.progress = progress
        try:
            with no_garbage():
                self.environment.run()
        finally:
            for program in [program for port in self._been for program in port.unbegun]:
                program.close()
        for by, version in self._unread:
            self._checkpoint(by, version)
        if self.owners.shown_by_all:
            left = [self._shown[rank] for rank in sorted(self._shown)]
            self.snapshots = {self.owners.ranks[0]: merged(left or [Snapshots(0)])}
            if all(self._last[rank].gone for rank in self.workers):
                self._leave_what_is_saved()
        stuck = [port for port in self._been if port.done < len(port.entries)]
        if stuck:  # who has the most left first: nearer to the cause than those who only wait for it
            stuck.sort(key=lambda port: port.done - len(port.entries))
            more = f"; and {len(stuck) - 3} more nodes" if len(stuck) > 3 else ""
            raise Divergence("; ".join(port.stuck() for port in stuck[:3]) + more)

    def _leave_what_is_saved(self) -> None:
        """Of what all held who are gone, the checkpoint is left that the log of the last of them tells."""
        version = max(self._last[rank].begins.version for rank in self.workers)
        saved = next((saved for (_, its), saved in self._saved.items() if its == version), None)
        self.leave(saved, version, inf)

    def checkpoint(self) -> dict[int, Saved]:
        """Of each rank, what the next life goes on from. Raises Divergence if it has not been written."""
        version = self._next_version or 0
        return for_everyone(self.plan, {rank: self._checkpoint(rank, version) for rank in self.plan.savers})

    def _checkpoint(self, rank: int, version: int) -> Saved:
        if (rank, version) not in self._saved:
            name = self.roles[rank].name
            raise Divergence(f"{name} does not write the checkpoint of version {version}")
        return self._saved[rank, version]


def replay(plan: Plan, interleaving: pd.DataFrame, progress: Progress | None = None) -> Result:
    """Repeat the real run that left this log (a row an `Entry`); raises Divergence if it cannot."""
    nodes = interleaving["node"].nunique()
    if nodes != len(plan.roles) or interleaving["node"].max() >= nodes:
        raise Divergence(f"it is of {nodes} nodes, and the scenario has {len(plan.roles)}")
    lives = lives_of(interleaving)
    frames, saved = list[pd.DataFrame](), dict[int, Saved]()
    with learning() if plan.scenario.workload.learns else nullcontext():
        for number, life in enumerate(lives):
            following = lives[number + 1].begins.version if number + 1 < len(lives) else None
            simulation = Replay(plan, life, replace(life.begins, saved=saved), following)
            simulation.run(progress and partial(_part, progress, number, len(lives)))
            result = simulation.result()
            if following is None:
                if simulation.back:
                    result = replace(result, records=cut(result.records, [], simulation.back))
                result = replace(result, records=completed(plan, result.records))
                break
            if following > life.begins.version:
                saved = simulation.checkpoint()
            now = simulation.environment.now
            gone = [*simulation.back, *((owner, following, inf) for owner in plan.owners.ranks)]
            frames.append(cut(result.records, [(rank, now) for rank in simulation.nodes], gone))
    if not frames:
        return result
    records = join([*frames, result.records])
    return replace(result, records=records, utilisation=None)


def _part(progress: Progress, number: int, lives: int, done: float) -> None:
    progress((number + done) / lives)
