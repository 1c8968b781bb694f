"""The systems: what each is, its scenario, its factor, and figures that were published and read."""

from lockstep.studies.systems.system import Also, Published, System

_NOT_READ = "no figure was found in a source that could be read"
_MINERVA = "README of dmlc/minerva: 4 GTX Titan, 256 images a card (AlexNet), 120 (GoogLeNet)"
_TENSORFLOW = "tensorflow/docs, r1 guide, performance/benchmarks.md: p2.8xlarge, May 2017, synthetic data"
_DMTK_TITAN = (
    "microsoft/Multiverso, binding/python/docs/BENCHMARK.md at e1a58bb: 29.38 and 27.46 s an epoch; with one "
    "card 100.02 s, and 109.78 s with an exchange every mini-batch"
)
_DMTK_K40 = (
    "microsoft/Multiverso, binding/python/docs/BENCHMARK.md at 6f5be63: 34.1 s an epoch with 8 cards; with "
    "one and batches of 128 175.4 s, and 194.4 s with an exchange every mini-batch"
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
        source="apache/mxnet, src/kvstore/kvstore_dist.h and docs/faq/gradient_compression (read): key k is "
        "on server 9973·k mod S, which is in turn, in another order",
        also=(
            Also(
                "systems/mxnet-row-sparse",
                "row-sparse weights: only the rows that a mini-batch touches go either way",
                {"strategy.codec": "none"},
            ),
        ),
        lacking="messages are one a server, not one a variable; a row-sparse optimizer that lets the "
        "moments of rows rest",
        tables=("mxnet-2015", "mxnet-2017-hosts", "dlperf-2020"),
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
        source="tensorflow/tensorflow, python/training/device_setter.py (read)",
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
        source="microsoft/CNTK, Source/1BitSGD/AllReduceDistGradAggregator.h (read)",
        lacking="block momentum is strategies/bmuf",
        tables=("cntk-2016-lstm",),
    ),
    System(
        name="Distributed training on Azure",
        scenario="systems/azure",
        architecture="a launcher of MPI jobs, one process a card",
        consistency="synchronous",
        placement="even parts on the nodes",
        communication="what CNTK does; or sums around a ring (Horovod)",
        parallelism="data",
        factor="hosts of two cards, which share a link",
        without={"cluster.workers_per_host": 1},
        source="Azure/batch-shipyard, recipes/CNTK-GPU-OpenMPI, and what it runs, CNTK's Multigpu.cntk; "
        "microsoftarchive/BatchAI, recipes/Horovod (read)",
        also=(
            Also(
                "systems/azure-horovod",
                "Horovod's ring, which sums a gradient in parts during the backward pass",
                {"strategy.buckets": 1},
            ),
        ),
        lacking="recipes, not an algorithm of its own; CNTK's first epoch, which one process makes",
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
        source="yahoo/CaffeOnSpark, caffe-distri/src/main/cpp/util/socket_sync.cpp (read)",
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
        source="intel-analytics/BigDL, docs/docs/whitepaper.md, sections 3.1 to 3.3 (read)",
        lacking="Drizzle's scheduling of several mini-batches at once",
        unread="its overhead is published as a share, not as a time a task",
    ),
    System(
        name="Minerva",
        scenario="systems/minerva",
        architecture="the cards of one host, no servers: each owns some layers",
        consistency="synchronous",
        placement="whole variables on the cards in turn",
        communication="gradients to the owner, weights from it, over the host's bus",
        parallelism="data",
        factor="cards on one host's bus",
        without={"cluster.workers_per_host": 1},
        source="dmlc/minerva, owl/owl/net/trainer.py (read): consecutive layers on a card, not in turn",
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
        placement="every pair of cards has all",
        communication="sums over the host's bus; activations inside a group",
        parallelism="data, and models that are cut",
        factor="layers that two cards share",
        without={"parallelism.tensor": 1},
        source="Zou et al. 2014 (the abstract read)",
        lacking="its CPU cluster is a parameter server as DistBelief's",
        unread="the abstract (read) has no figure",
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
        source="bosen, ssp_aggr_bg_worker.cpp (read); Wei et al. 2015, and Zhang et al. 2015 and 2017 "
        "(Poseidon; the abstracts read)",
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
        unread="Poseidon's abstracts (read) have 4.5 times for AlexNet on 8 nodes, without the network, and "
        "15.5 times for VGG19-22K on 16 over 10 Gbit/s, without what one takes for a mini-batch",
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
        source="apache/singa, src/server.cc of April 2016 (read)",
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
        source="microsoft/Multiverso, src/zoo.cpp (every process is a worker and a server), "
        "binding/lua/docs/TUTORIAL.md (read)",
        published=(
            Published(
                "ResNet-32 on CIFAR-10, 4 Titan X, an exchange every mini-batch",
                50_000 / 29.38,
                "systems/published/dmtk-resnet-32-titan-x",
                _DMTK_TITAN,
                "near; that all cards share what one has for an exchange is assumed, and that compute times "
                "vary by 5% (else all exchange at once)",
            ),
            Published(
                "the same, an exchange every third",
                50_000 / 27.46,
                "systems/published/dmtk-resnet-32-titan-x",
                _DMTK_TITAN,
                "near: this is 7% faster in theirs, 9% here",
                {"strategy.communication_window": 3},
            ),
            Published(
                "ResNet-32 on CIFAR-10, 8 K40m, Theano",
                50_000 / 34.1,
                "systems/published/dmtk-resnet-32-k40m",
                _DMTK_K40,
                "below: that all cards share what one has for an exchange is too hard with eight; half of a "
                "batch of 128 is taken for a batch of 64, of which no time is published",
            ),
            Published(
                "ResNet-32 on CIFAR-10, 8 K40m, Torch",
                50_000 / 11.37,
                "systems/published/dmtk-resnet-32",
                "microsoft/Multiverso, binding/lua/docs/BENCHMARK.md at 6f5be63: 11.37 s an epoch with 8 "
                "cards, 55.57 s with one",
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
        source="GoogleCloudPlatform/cloudml-dist-mnist-example, README.md and trainer/task.py (read): "
        "a server, a master and two workers, which all train",
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
        source="Dean et al. 2012 (the algorithm second-hand, the abstract read)",
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
        source="Chilimbi et al. 2014 (second-hand, but the abstract, which was read)",
        also=(
            Also(
                "systems/project-adam-activations",
                "two thin matrices instead of a fully connected layer's gradient: the server multiplies",
                {"strategy.codec": "none"},
            ),
        ),
        lacking="both at once; threads without locks inside a machine (strategies/hogwild)",
        unread="the abstract (read) has thirty times fewer machines than DistBelief's, no speed",
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
        source="Watcharapichat et al. 2016 (the schedule of partitions from memory, the abstract read)",
        lacking="the number of partitions is given, not chosen for the bandwidth there is",
        unread="the abstract (read) has no figure",
    ),
)
