// server_throughput MEGABYTES REPEATS, on two ranks: how fast a worker pushes a gradient of that size to a server,
// which applies it with plain SGD, and pulls the parameters back, against a plain copy of as many bytes there and back
// through the same transport, in turn. Rank 0 prints one JSON object.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include <mpi.h>
#include <torch/torch.h>

#include "isochron/comm/mpi_session.h"
#include "isochron/server/channel.h"
#include "isochron/server/layout.h"
#include "isochron/server/parameter_client.h"
#include "isochron/server/parameter_server.h"
#include "isochron/server/shard_optimizer.h"

namespace {

using namespace isochron::server;
using Clock = std::chrono::steady_clock;

double seconds_of(const auto& action) {
  const auto start = Clock::now();
  action();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Without using up the core that the server runs on.
void meet(Channel& channel) {
  std::vector<MPI_Request> requests(1);
  MPI_Ibarrier(channel.expected(), requests.data());
  channel.wait(requests, "meeting");
}

// All chunks in flight at once, as the client does.
void copy(Channel& channel, const at::Tensor& tensor, int from) {
  std::vector<MPI_Request> requests;
  auto* const bytes = static_cast<char*>(tensor.mutable_data_ptr());
  const auto size = static_cast<std::int64_t>(tensor.nbytes());
  for (std::int64_t at = 0; at < size; at += isochron::kChunkBytes) {
    const int length = static_cast<int>(std::min(isochron::kChunkBytes, size - at));
    MPI_Request& request = requests.emplace_back(MPI_REQUEST_NULL);
    if (channel.rank() == from) {
      MPI_Isend(bytes + at, length, MPI_BYTE, 1 - from, 1, channel.expected(), &request);
    } else {
      MPI_Irecv(bytes + at, length, MPI_BYTE, from, 1, channel.expected(), &request);
    }
  }
  channel.wait(requests, "copying");
}

struct Times {
  std::vector<double> push;
  std::vector<double> pull;
  std::vector<double> copy;
};

void time_server(Channel& channel, ParameterClient& client, const at::Tensor& parameter, Times& times, int round) {
  if (channel.rank() == 0) {
    times.pull.push_back(seconds_of([&] {
      client.start_pull({.iteration = round});
      client.finish_pull();
    }));
    at::Tensor(parameter).mutable_grad() = at::ones_like(parameter);
    const isochron::PushHeader push{.from = {.worker = 0, .iteration = round, .last = 1}, .rate = 1.0};
    times.push.push_back(seconds_of([&] {
      client.begin_push(push, {0.01}, /*only_finite=*/false);
      client.finish_push();
    }));
  }
  meet(channel);
}

void time_copy(Channel& channel, const at::Tensor& buffer, Times& times) {
  meet(channel);
  times.copy.push_back(seconds_of([&] {
    copy(channel, buffer, 0);
    copy(channel, buffer, 1);
  }));
}

}  // namespace

int main(int count, char** words) {
  at::set_num_threads(1);
  const double megabytes = count > 1 ? std::stod(words[1]) : 45.0;
  const int repeats = count > 2 ? std::stoi(words[2]) : 20;
  const isochron::MpiSession session;
  Channel channel(MPI_COMM_WORLD, std::chrono::seconds(60));
  const at::Tensor parameter = at::zeros({static_cast<std::int64_t>(megabytes * 1e6 / 4)}).requires_grad_();
  const torch::optim::SGD optimizer({parameter}, torch::optim::SGDOptions(0.01));
  const Layout layout = make_layout({{parameter}}, 1);
  ParameterServer::Chunks chunks;
  for (std::size_t i = 0; channel.rank() == 1 && i < layout.chunks.size(); ++i) {
    const at::Tensor values = at::zeros({layout.chunks[i].size()});
    chunks.emplace(i, ServedChunk(values, shard_optimizer(optimizer, 0, values, 0), {}));
  }
  Times times;
  {
    ParameterServer server(channel, std::move(chunks), {});
    ParameterClient client(channel, layout, {{.rank = 1}});
    const at::Tensor buffer = at::ones({parameter.numel()});
    for (int round = 0; round < repeats; ++round) {
      server.resume();
      time_server(channel, client, parameter, times, round);
      server.pause();
      time_copy(channel, buffer, times);
    }
  }
  if (channel.rank() == 0) {
    const double bytes = 2.0 * static_cast<double>(parameter.nbytes());
    const double served = median(times.push) + median(times.pull);
    const double copied = median(times.copy);
    std::vector<double> ratios;  // of neighbours, which a busy machine disturbs alike
    ratios.reserve(times.copy.size());
    for (std::size_t i = 0; i < times.copy.size(); ++i) {
      ratios.push_back(times.copy[i] / (times.push[i] + times.pull[i]));
    }
    std::printf(
        "{\"megabytes\": %.1f, \"push_seconds\": %.6f, \"pull_seconds\": %.6f, \"copy_seconds\": %.6f, "
        "\"server_bytes_per_second\": %.4g, \"copy_bytes_per_second\": %.4g, \"ratio\": %.3f}\n",
        megabytes,
        median(times.push),
        median(times.pull),
        copied,
        bytes / served,
        bytes / copied,
        median(ratios));
  }
  MPI_Barrier(MPI_COMM_WORLD);
}
