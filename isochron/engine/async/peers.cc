#include "isochron/engine/async/peers.h"

#include <string>

#include <mpi.h>
#include <unistd.h>

namespace isochron {

std::vector<Peer> gather_peers(const Group& group) {
  std::string host(MPI_MAX_PROCESSOR_NAME, '\0');
  int length = 0;
  MPI_Get_processor_name(host.data(), &length);
  host.resize(static_cast<std::size_t>(length));
  std::vector<Peer> peers;
  for (const std::string& text : all_gather(group, std::to_string(getpid()) + " " + host)) {
    const std::size_t space = text.find(' ');
    peers.push_back(
        {.rank = static_cast<int>(peers.size()),
         .host = text.substr(space + 1),
         .process = std::stoi(text.substr(0, space))});
  }
  return peers;
}

}  // namespace isochron
