// Asynchronous parameter-server training in SimGrid (S4U): see simgrid_speed.py, which compiles and times it.
//
// Arguments: workers, shards (0: one server with a host of its own; else one on each worker's host), steps,
// bytes of the parameters, bandwidth in bytes/s, latency in s, file of the compute times (doubles, those of
// worker 0 first; in s), then SimGrid's --cfg=… . Prints the virtual duration and the processor's seconds that
// the simulation took, the platform's making left out.

#include <cstdio>
#include <ctime>
#include <fstream>
#include <simgrid/s4u.hpp>
#include <string>
#include <vector>

namespace sg4 = simgrid::s4u;

int main(int argc, char** argv)
{
  sg4::Engine engine(&argc, argv);
  if (argc != 8)
    return 2;
  const int workers      = std::stoi(argv[1]);
  const int shards       = std::stoi(argv[2]);
  const int steps        = std::stoi(argv[3]);
  const uint64_t bytes   = std::stoull(argv[4]);
  const double bandwidth = std::stod(argv[5]);
  const double latency   = std::stod(argv[6]);
  std::vector<double> seconds(static_cast<size_t>(workers) * steps);
  const auto size = static_cast<std::streamsize>(seconds.size() * sizeof(double));
  if (!std::ifstream(argv[7], std::ios::binary).read(reinterpret_cast<char*>(seconds.data()), size))
    return 2;

  // A star: every host has an up-link, which has the whole latency, and a down-link.
  auto* star = sg4::create_star_zone("star");
  std::vector<sg4::Host*> hosts;
  for (int rank = 0; rank <= workers; ++rank) {
    const std::string name = std::to_string(rank);
    const auto* up         = star->create_link(name + " up", bandwidth)->set_latency(latency)->seal();
    const auto* down       = star->create_link(name + " down", bandwidth)->set_latency(0)->seal();
    auto* host             = star->create_host(name, 1e9)->seal();
    star->add_route(host->get_netpoint(), nullptr, nullptr, nullptr, {sg4::LinkInRoute(up)}, false);
    star->add_route(nullptr, host->get_netpoint(), nullptr, nullptr, {sg4::LinkInRoute(down)}, false);
    hosts.push_back(host);
  }
  star->seal();

  std::vector<sg4::Mailbox*> mailboxes;
  std::vector<int> ranks;
  for (int rank = 0; rank <= workers; ++rank) {
    mailboxes.push_back(sg4::Mailbox::by_name(std::to_string(rank)));
    ranks.push_back(rank);
  }

  // A server is its mailbox's permanent receiver, so all pushes flow at once, whoever it is reading; equal
  // pushes end in the order in which they start, which is the order in which it reads them.
  auto serve = [&](sg4::Mailbox* inbox, sg4::Host* host, int clients, uint64_t part) {
    inbox->set_receiver(sg4::Actor::create("server", host, [&, inbox, clients, part] {
      for (long message = 0; message < static_cast<long>(clients) * (steps + 1); ++message) {
        int* from = inbox->get<int>();
        mailboxes[*from]->put_init(from, part)->detach();
      }
    }));
  };
  std::vector<sg4::Mailbox*> inboxes;
  if (shards == 0) {
    inboxes.push_back(mailboxes[workers]);
    serve(inboxes[0], hosts[workers], workers, bytes);
  } else {
    for (int shard = 0; shard < shards; ++shard) {
      inboxes.push_back(sg4::Mailbox::by_name("shard " + std::to_string(shard)));
      serve(inboxes[shard], hosts[shard], workers - 1, bytes / shards);
    }
  }

  for (int rank = 0; rank < workers; ++rank)
    sg4::Actor::create("worker", hosts[rank], [&, rank] {
      auto exchange = [&](uint64_t part) {
        if (shards == 0) {
          inboxes[0]->put(&ranks[rank], part);
          mailboxes[rank]->get<int>();
          return;
        }
        std::vector<sg4::CommPtr> all;
        std::vector<int*> answers(shards);
        for (int shard = 0; shard < shards; ++shard) {
          if (shard == rank) // inside its host it takes no time
            continue;
          all.push_back(inboxes[shard]->put_async(&ranks[rank], part));
          all.push_back(mailboxes[rank]->get_async<int>(&answers[shard]));
        }
        sg4::Comm::wait_all(all);
      };
      exchange(0); // a pull
      for (int step = 0; step < steps; ++step) {
        sg4::this_actor::sleep_for(seconds[static_cast<size_t>(rank) * steps + step]);
        exchange(shards == 0 ? bytes : bytes / shards); // a push
      }
    });

  const auto start = std::clock();
  engine.run();
  const double used = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  std::printf("%.17g %.17g\n", sg4::Engine::get_clock(), used);
}
