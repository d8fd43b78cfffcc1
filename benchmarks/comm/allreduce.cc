// comm_allreduce MEGABYTES REPEATS: the time of an all-reduce over the ranks it is started on, and the CPU that a
// rank uses while it waits a second for a late one. Rank 0 prints one JSON object.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <mpi.h>
#include <sys/resource.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "isochron/comm/mpi_backend.h"
#include "isochron/comm/mpi_session.h"

namespace {

using Clock = std::chrono::steady_clock;
using Backend = c10::intrusive_ptr<c10d::Backend>;

double seconds(Clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto total = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + (1e-6 * static_cast<double>(time.tv_usec));
  };
  return total(usage.ru_utime) + total(usage.ru_stime);
}

double time_allreduce(const Backend& backend, std::vector<at::Tensor>& tensors) {
  backend->barrier()->wait();
  const auto start = Clock::now();
  backend->allreduce(tensors)->wait();
  return seconds(Clock::now() - start);
}

// The last rank comes a second late; the share of a core that this one uses meanwhile.
double waiting_share(const Backend& backend) {
  std::vector<at::Tensor> tensors{at::ones({1024})};
  backend->barrier()->wait();
  const auto start = Clock::now();
  const double cpu = cpu_seconds();
  if (backend->getRank() == backend->getSize() - 1) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  backend->allreduce(tensors)->wait();
  return (cpu_seconds() - cpu) / seconds(Clock::now() - start);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: comm_allreduce MEGABYTES REPEATS\n");
    return 2;
  }
  const isochron::MpiSession session;
  const Backend backend = isochron::make_mpi_backend(MPI_COMM_WORLD);
  std::vector<at::Tensor> tensors{at::ones({static_cast<std::int64_t>(std::stod(argv[1]) * 1e6 / 4)})};
  const int repeats = std::stoi(argv[2]);
  for (int i = 0; i < 3; ++i) {
    time_allreduce(backend, tensors);
  }
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    tensors[0].fill_(1);
    times.push_back(time_allreduce(backend, tensors));
  }
  const double waiting = waiting_share(backend);
  if (backend->getRank() == 0) {
    std::printf(R"({"waiting_share": %.4f, "seconds": [)", waiting);
    for (std::size_t i = 0; i < times.size(); ++i) {
      std::printf("%s%.6f", i == 0 ? "" : ", ", times[i]);
    }
    std::printf("]}\n");
  }
}
