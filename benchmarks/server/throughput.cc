// server_throughput MEGABYTES REPEATS, on two ranks: how fast a worker pushes a gradient of that size to a server,
// which applies it with plain SGD, and pulls the parameters back, against a plain copy of as many bytes there and back
// through the same transport, in turn. Rank 0 prints one JSON object.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include <mpi.h>
#include <torch/torch.h>

#include "isochron/comm/mpi_session.h"
#include "isochron/engine/async/model_client.h"
#include "isochron/engine/async/mpi_link.h"
#include "isochron/engine/async/shard_optimizer.h"
#include "isochron/engine/async/tensor_chunk.h"
#include "isochron/engine/async/tensor_layout.h"
#include "isochron/server/parameter_client.h"
#include "isochron/server/parameter_server.h"

namespace {

using isochron::MpiLink;
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
void reach_barrier(MpiLink& link) {
  std::byte mine{};
  std::byte theirs{};
  const int other = 1 - link.rank();
  Transfers transfers{link.send(other, kAnswerTag, {&mine, 1}), link.receive(other, kAnswerTag, {&theirs, 1})};
  link.wait(transfers, "a barrier");
}

// All chunks in flight at once, as the client does.
void copy(MpiLink& link, const at::Tensor& tensor, int from) {
  Transfers transfers;
  const Space all(static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes());
  for (std::size_t at = 0; at < all.size(); at += static_cast<std::size_t>(isochron::kChunkBytes)) {
    const Space part = all.subspan(at, std::min(static_cast<std::size_t>(isochron::kChunkBytes), all.size() - at));
    transfers.push_back(
        link.rank() == from ? link.send(1 - from, kGradientTag, part) : link.receive(from, kGradientTag, part));
  }
  link.wait(transfers, "copying");
}

struct Times {
  std::vector<double> push;
  std::vector<double> pull;
  std::vector<double> copy;
};

void time_server(
    MpiLink& link,
    isochron::ModelClient& model,
    ParameterClient& client,
    const at::Tensor& parameter,
    Times& times,
    int round) {
  if (link.rank() == 0) {
    times.pull.push_back(seconds_of([&] {
      client.start_pull({.iteration = round});
      client.finish_pull();
    }));
    at::Tensor(parameter).mutable_grad() = at::ones_like(parameter);
    const isochron::PushHeader push{.from = {.worker = 0, .iteration = round, .last = 1}, .rate = 1.0};
    times.push.push_back(seconds_of([&] {
      client.begin_push(push, {{.rate = 0.01}});
      model.begin_push(client, /*only_finite=*/false);
      model.send_rest();
      client.finish_push();
    }));
  }
  reach_barrier(link);
}

void time_copy(MpiLink& link, const at::Tensor& buffer, Times& times) {
  reach_barrier(link);
  times.copy.push_back(seconds_of([&] {
    copy(link, buffer, 0);
    copy(link, buffer, 1);
  }));
}

}  // namespace

int main(int count, char** words) {
  at::set_num_threads(1);
  const double megabytes = count > 1 ? std::stod(words[1]) : 45.0;
  const int repeats = count > 2 ? std::stoi(words[2]) : 20;
  const isochron::MpiSession session;
  MpiLink link(MPI_COMM_WORLD, {{.rank = 0}, {.rank = 1}}, std::chrono::seconds(60));
  const at::Tensor parameter = at::zeros({static_cast<std::int64_t>(megabytes * 1e6 / 4)}).requires_grad_();
  const torch::optim::SGD optimizer({parameter}, torch::optim::SGDOptions(0.01));
  const isochron::TensorLayout layout = isochron::make_layout({{parameter}}, 1);
  ParameterServer::Chunks chunks;
  for (std::size_t i = 0; link.rank() == 1 && i < layout.chunks.size(); ++i) {
    const at::Tensor values = at::zeros({layout.chunks[i].size()});
    chunks.emplace(
        i,
        std::make_unique<isochron::TensorChunk>(
            values, isochron::shard_optimizer(optimizer, 0, values, 0), isochron::PushRate{}));
  }
  Times times;
  {
    ParameterServer server(link, std::move(chunks), nullptr);
    server.start();
    isochron::ModelClient model(layout);
    ParameterClient client(link, layout, /*first_server=*/1, model.places());
    const at::Tensor buffer = at::ones({parameter.numel()});
    for (int round = 0; round < repeats; ++round) {
      server.resume();
      time_server(link, model, client, parameter, times, round);
      server.pause();
      time_copy(link, buffer, times);
    }
  }
  if (link.rank() == 0) {
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
