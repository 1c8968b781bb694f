"""The systems: what each is, its scenario, its factor, and figures that were published and read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Published:
    """A throughput in samples/s, and the scenario of that size that predicts it."""

    what: str
    value: float
    scenario: str
    source: str
    verdict: str
    """Why it is met or missed, in a sentence; what is not known."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Keys of that scenario that are otherwise here."""


@dataclass(frozen=True)
class Also:
    """Another scenario of a system, with a factor that the first does not have."""

    scenario: str
    factor: str
    without: Mapping[str, Any]


@dataclass(frozen=True)
class System:
    """A row. `scenario` is the name of a shipped one, which runs in both engines."""

    name: str
    scenario: str
    architecture: str
    consistency: str
    placement: str
    communication: str
    parallelism: str
    factor: str
    """What it has and its neighbours have not, in words."""
    without: Mapping[str, Any]
    """Keys of the scenario that take the factor away."""
    also: tuple[Also, ...] = ()
    lacking: str = ""
    """What the scenario does not have of the system."""
    published: tuple[Published, ...] = ()
    tables: tuple[str, ...] = ()
    """Of those that `validate --published` predicts (docs/published.md), the ones measured with it."""
    unread: str = ""
    """Why there is no published figure, if there is none."""

    def row(self) -> dict[str, Any]:
        """As JSON has it."""
        words = ("name", "scenario", "architecture", "consistency", "placement", "communication")
        return {
            **{key: getattr(self, key) for key in (*words, "parallelism")},
            "published": [
                {
                    "what": each.what,
                    "samples_per_s": each.value,
                    "scenario": each.scenario,
                    "source": each.source,
                }
                for each in self.published
            ],
        }


_NOT_READ = "no figure was found in a source that could be read"
_MINERVA = "README of dmlc/minerva: 4 GTX Titan, 256 images a card (AlexNet), 120 (GoogLeNet)"
_TENSORFLOW = "tensorflow/docs, r1 guide, performance/benchmarks.md: p2.8xlarge, May 2017, synthetic data"
_DMTK_PYTHON = (
    "microsoft/Multiverso, binding/python/docs/BENCHMARK.md at e1a58bb: 29.38 and 27.46 s an epoch; with one "
    "card 100.02 s, and 109.78 s with an exchange every mini-batch"
)
_OVERLAP = {"strategy.chunks": 10, "cluster.compute.backward": 0.67}

# By consistency (synchronous, bounded, asynchronous); with servers, then without; data, then models cut.
SYSTEMS: tuple[System, ...] = (
    System(
        name="MXNet",
        scenario="systems/mxnet",
        architecture="parameter servers on the workers' hosts",
        consistency="synchronous (dist_sync); asynchronous too",
        placement="whole variables in turn, large ones on all servers",
        communication="push and pull a variable, 2 bits a number pushed",
        parallelism="data",
        factor="2-bit pushes with a residual",
        without={"strategy.codec": "none"},
        also=(
            Also(
                "systems/mxnet-row-sparse",
                "row-sparse weights: only the rows that a mini-batch touches go either way",
                {"strategy.codec": "none"},
            ),
        ),
        lacking="messages are one a server, not one a variable; a row-sparse optimizer that lets the "
        "moments of rows rest",
        tables=("mxnet-2015", "dlperf-2020"),
    ),
    System(
        name="TensorFlow",
        scenario="systems/tensorflow",
        architecture="parameter servers of their own",
        consistency="synchronous; asynchronous, or the first of more (backup-workers) too",
        placement="whole variables on the servers in turn",
        communication="push and pull a variable",
        parallelism="data",
        factor="whole variables on servers",
        without={"cluster.servers.placement": "even"},
        tables=(
            *("tensorflow-2017-hosts", "tensorflow-2017-one-host-servers"),
            *("tensorflow-2017-one-host-replicated", "cscs-2017-inception-v3", "cscs-2017-p2.8xlarge"),
        ),
        published=(
            Published(
                "Inception-v3, 64 K80 on 8 hosts, no overlap",
                1783,
                "systems/published/tensorflow-inception-v3",
                _TENSORFLOW,
                "below: theirs pushes variables during the backward pass",
            ),
            Published(
                "the same, pushed in ten chunks as they are made",
                1783,
                "systems/published/tensorflow-inception-v3",
                _TENSORFLOW,
                "above, by less",
                _OVERLAP,
            ),
            Published(
                "ResNet-152, 64 K80 on 8 hosts, no overlap",
                981,
                "systems/published/tensorflow-resnet-152",
                _TENSORFLOW,
                "below; the four hosts that have servers carry all of it",
            ),
            Published(
                "the same, pushed in ten chunks as they are made",
                981,
                "systems/published/tensorflow-resnet-152",
                _TENSORFLOW,
                "above: even shards are the best that a placement can do, and their variables are whole",
                _OVERLAP,
            ),
        ),
    ),
    System(
        name="CNTK",
        scenario="systems/cntk",
        architecture="no servers: every node owns a part (MPI)",
        consistency="synchronous; block momentum (bmuf) too",
        placement="even parts on the nodes",
        communication="1 bit a number both ways, with what it loses kept",
        parallelism="data",
        factor="1-bit codes both ways",
        without={"strategy.codec": "none", "strategy.answer_codec": "none"},
        lacking="block momentum is strategies/bmuf",
        tables=("cntk-2016-lstm",),
    ),
    System(
        name="Distributed training on Azure",
        scenario="systems/azure",
        architecture="a launcher of MPI jobs",
        consistency="synchronous",
        placement="every node has all",
        communication="1 bit a number, everyone to everyone",
        parallelism="data",
        factor="its recipe's 1-bit codes",
        without={"strategy.codec": "none"},
        lacking="a recipe, not an algorithm of its own",
        tables=("azure-2018-horovod",),
    ),
    System(
        name="CaffeOnSpark",
        scenario="systems/caffe-on-spark",
        architecture="no servers: every node owns a part",
        consistency="synchronous",
        placement="even parts on the nodes",
        communication="reduce-scatter and all-gather, all to all",
        parallelism="data",
        factor="all to all instead of a ring",
        without={"strategy.algorithm": "ring"},
        lacking="the tree inside a host of several cards",
        unread=_NOT_READ,
    ),
    System(
        name="BigDL",
        scenario="systems/bigdl",
        architecture="a Spark driver and tasks, no servers",
        consistency="synchronous",
        placement="even parts on the nodes",
        communication="shuffle and broadcast of parts, all to all",
        parallelism="data",
        factor="what starting a task takes",
        without={"strategy.task_overhead_s": 0.0},
        lacking="Drizzle's scheduling of several mini-batches at once",
        unread="its overhead is published as a share, not as a time a task",
    ),
    System(
        name="Minerva",
        scenario="systems/minerva",
        architecture="the cards of one host",
        consistency="synchronous",
        placement="every card has all",
        communication="sums over the host's bus",
        parallelism="data",
        factor="cards on one host's bus",
        without={"cluster.workers_per_host": 1},
        tables=("minerva-2015",),
        published=(
            Published(
                "AlexNet, 4 GTX Titan",
                632.09,
                "systems/published/minerva-alexnet",
                _MINERVA,
                "met at the assumed bus, which all cards share: one unknown and one figure, no proof",
            ),
            Published(
                "GoogLeNet, 4 GTX Titan",
                309.27,
                "systems/published/minerva-googlenet",
                _MINERVA,
                "near, not by the bus: with a ninth of AlexNet's bytes cards lose 97 ms a step, not 28",
            ),
        ),
    ),
    System(
        name="Mariana",
        scenario="systems/mariana",
        architecture="the cards of one host, in groups",
        consistency="synchronous",
        placement="every group has all",
        communication="sums over the host's bus; activations inside a group",
        parallelism="data, and models that are cut",
        factor="layers that two cards share",
        without={"parallelism.tensor": 1},
        lacking="its CPU cluster is a parameter server as DistBelief's",
        unread=_NOT_READ,
    ),
    System(
        name="Petuum",
        scenario="systems/petuum",
        architecture="parameter servers on the workers' hosts (tables)",
        consistency="bounded staleness (SSP)",
        placement="even shards",
        communication="deltas, the largest first, as many as a bandwidth allows",
        parallelism="data",
        factor="pushes that are capped by a bandwidth, the largest elements first",
        without={"strategy.codec": "none"},
        also=(
            Also(
                "systems/petuum-poseidon",
                "Poseidon's wait-free backpropagation, pushes of parts during the backward pass",
                {"strategy.chunks": 1},
            ),
        ),
        lacking="rows instead of elements, by magnitude relative to the parameter; messages between clocks; "
        "a cap on what servers send (Poseidon's sufficient factors are those of "
        "`systems/project-adam-activations`)",
        unread="Poseidon's abstract (read) has 4.5 times for AlexNet on 8 nodes, but not the network",
    ),
    System(
        name="SINGA",
        scenario="systems/singa",
        architecture="worker groups, server groups",
        consistency="synchronous inside a group, asynchronous between",
        placement="even shards",
        communication="push and pull",
        parallelism="data; layers may be cut inside a group",
        factor="server groups, each with a copy of the parameters (distributed Hogwild)",
        without={"cluster.servers.copies": 1},
        also=(Also("systems/singa-downpour", "worker groups", {"strategy.groups": 1}),),
        lacking="a master for each slice of a shard: here it is one for each shard",
        unread="its figures are pictures",
    ),
    System(
        name="DMTK",
        scenario="systems/dmtk",
        architecture="parameter servers on the workers' hosts (tables)",
        consistency="asynchronous",
        placement="even shards",
        communication="add and get, every few mini-batches",
        parallelism="data",
        factor="a push every two mini-batches",
        without={"strategy.communication_window": 1},
        published=(
            Published(
                "ResNet-32 on CIFAR-10, 4 Titan X, an exchange every mini-batch",
                50_000 / 29.38,
                "systems/published/dmtk-resnet-32-titan-x",
                _DMTK_PYTHON,
                "near; that all cards share what one has for an exchange is assumed, and that compute times "
                "vary by 5% (else all exchange at once)",
            ),
            Published(
                "the same, an exchange every third",
                50_000 / 27.46,
                "systems/published/dmtk-resnet-32-titan-x",
                _DMTK_PYTHON,
                "near: this is 7% faster in theirs, 9% here",
                {"strategy.communication_window": 3},
            ),
            Published(
                "ResNet-32 on CIFAR-10, 8 K40m",
                50_000 / 11.37,
                "systems/published/dmtk-resnet-32",
                "microsoft/Multiverso, binding/lua/docs/BENCHMARK.md: 11.37 s an epoch with 8 cards, 55.57 s "
                "with one",
                "too fast: half of a batch of 128 is taken for a batch of 64, of which no time is published, "
                "nor what an exchange takes",
            ),
        ),
    ),
    System(
        name="TensorFlow on Cloud ML",
        scenario="systems/cloud-ml",
        architecture="a launcher of TensorFlow jobs: one parameter server",
        consistency="asynchronous",
        placement="one server has all",
        communication="push and pull",
        parallelism="data",
        factor="its recipe's asynchronous workers",
        without={"strategy.name": "synchronous"},
        lacking="a recipe, not an algorithm of its own",
        unread="a launcher: none is its own",
    ),
    System(
        name="DistBelief",
        scenario="systems/distbelief",
        architecture="parameter servers of their own",
        consistency="asynchronous (Downpour)",
        placement="even shards",
        communication="pushes and fetches in the background",
        parallelism="data, and models that are cut",
        factor="pushes and fetches that hide behind computing",
        without={"strategy.name": "downpour-blocking"},
        lacking="Sandblaster (below)",
        unread="its figures are curves; the abstract (read) has none of speed",
    ),
    System(
        name="Project Adam",
        scenario="systems/project-adam",
        architecture="parameter servers of their own",
        consistency="asynchronous",
        placement="even shards",
        communication="push and pull a gradient",
        parallelism="data, and models that are cut",
        factor="replicas of two machines",
        without={"parallelism.tensor": 1},
        also=(
            Also(
                "systems/project-adam-activations",
                "two thin matrices instead of a fully connected layer's gradient: the server multiplies",
                {"strategy.codec": "none"},
            ),
        ),
        lacking="both at once; threads without locks inside a machine (strategies/hogwild)",
        unread=_NOT_READ,
    ),
    System(
        name="The peer-to-peer framework (Ako)",
        scenario="systems/ako",
        architecture="no servers: everyone to everyone",
        consistency="asynchronous, delayed by the number of partitions at most",
        placement="every worker has a model",
        communication="a part of the last steps to each other worker",
        parallelism="data",
        factor="partial gradients",
        without={"strategy.partitions": 1},
        lacking="the number of partitions is given, not chosen for the bandwidth there is",
        unread="the abstract (read) has no figure",
    ),
)
