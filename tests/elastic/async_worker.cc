// A worker of a real asynchronous job that does to itself what the command line says.
//
//   async_worker FOLDER KEY=VALUE… WORKER:ITERATION:WHERE[:MICROSECONDS]…
//
// Keys: sync (asp, ssp), staleness, servers, epochs, samples, timeout (ms), leave (its iteration in which every worker
// asks the job to end), signal (in the place of SIGKILL), ending (exit: it leaves by _exit(0) there; error: it raises
// one), save (1: every epoch ends with a checkpoint). WHERE: "forward", "push" (so many microseconds after backward
// has begun), "free" (so many after it has ended), "barrier" (before the sum after the epoch with that number), "save"
// (before its checkpoint), "serve" (so many microseconds after that epoch has begun, for dedicated servers), "end" (of
// the job, after so many epochs). Whoever reaches the end writes down what it holds.
#include <chrono>
#include <csignal>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <torch/torch.h>
#include <unistd.h>

#include "isochron/data/synthetic_images.h"
#include "isochron/engine/job.h"

namespace isochron {
namespace {

struct Fault {
  int worker = 0;
  std::int64_t when = 0;
  std::string where;
  std::int64_t microseconds = 0;
};

struct Script {
  std::string folder;
  std::map<std::string, std::string> keys;
  std::vector<Fault> faults;

  std::int64_t number(const std::string& key, std::int64_t otherwise) const {
    const auto found = keys.find(key);
    return found == keys.end() ? otherwise : std::stoll(found->second);
  }
};

Fault parse_fault(const std::string& word) {
  std::vector<std::string> parts(1);
  for (const char c : word) {
    if (c == ':') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return {
      .worker = std::stoi(parts[0]),
      .when = std::stoll(parts[1]),
      .where = parts[2],
      .microseconds = parts.size() > 3 ? std::stoll(parts[3]) : 0};
}

Script read_script(int count, char** words) {
  Script script{.folder = words[1]};
  for (int i = 2; i < count; ++i) {
    const std::string word = words[i];
    if (const auto sign = word.find('='); sign != std::string::npos) {
      script.keys[word.substr(0, sign)] = word.substr(sign + 1);
    } else {
      script.faults.push_back(parse_fault(word));
    }
  }
  return script;
}

class Subject {
 public:
  explicit Subject(Script script)
      : script_(std::move(script)), model_(make_model()), optimizer_(model_->parameters(), options_of_optimizer()) {}

  void train() {
    Job job(options());
    first_rank_ = job.rank();
    job.prepare(*model_, optimizer_);
    const std::shared_ptr<const data::Dataset> dataset = data::synthetic_images(
        {.samples = script_.number("samples", 600), .classes = 4, .channels = 1, .height = 8, .width = 8, .seed = 1});
    for (const auto epoch : job.epochs(script_.number("epochs", 3))) {
      serve_until_death(epoch);
      for (const Batch& batch : job.loader(dataset)) {
        iterate(job, batch);
      }
      reach_barrier(job, epoch);
      if (script_.number("save", 0) > 0) {
        if (take(epoch, "save") != nullptr) {
          strike();
        }
        job.save(script_.folder + "/epoch-" + std::to_string(epoch) + ".ckpt");
      }
    }
    if (take(script_.number("epochs", 3), "end") != nullptr) {
      strike();
    }
    write_end(job);
  }

 private:
  static torch::nn::Sequential make_model() {
    torch::manual_seed(3);
    using namespace torch::nn;
    return Sequential(Flatten(), Linear(64, 32), Tanh(), Linear(32, 4));
  }
  static torch::optim::SGDOptions options_of_optimizer() { return torch::optim::SGDOptions(0.02).momentum(0.5); }

  JobOptions options() {
    JobOptions options{{.global_batch = 32, .policy = "isochron", .seed = 7}};
    const auto sync = script_.keys.find("sync");
    options.sync = sync != script_.keys.end() && sync->second == "ssp" ? Sync::kSsp : Sync::kAsp;
    if (options.sync == Sync::kSsp) {
      options.async.staleness = script_.number("staleness", 2);
    }
    options.async.servers = script_.number("servers", 0);
    options.timeout = static_cast<double>(script_.number("timeout", 30'000)) / 1000.0;
    options.on_update = [this](const UpdateRecord& record) { used_[record.epoch] += record.worker.batch; };
    options.on_event = [this](const EventRecord& record) { events_ += " " + record.event + " " + record.words; };
    options.warn = [](const std::string& words) { std::cerr << words + "\n"; };
    return options;
  }

  const Fault* take(std::int64_t when, const std::string& where) {
    for (const Fault& fault : script_.faults) {
      if (fault.worker == first_rank_ && fault.when == when && fault.where == where) {
        return &fault;
      }
    }
    return nullptr;
  }

  // The file says when.
  void strike() const {
    std::ofstream(script_.folder + "/struck") << "now" << std::endl;
    const auto ending = script_.keys.find("ending");
    if (ending != script_.keys.end() && ending->second == "exit") {
      _exit(0);
    }
    if (ending != script_.keys.end() && ending->second == "error") {
      throw std::runtime_error("an error that nobody catches");
    }
    raise(static_cast<int>(script_.number("signal", SIGKILL)));
  }

  void die_after(std::int64_t microseconds) const {
    std::thread([this, microseconds] {
      std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
      strike();
    }).detach();
  }

  // A dedicated server's main thread has nothing to do but to reach barriers.
  void serve_until_death(std::int64_t epoch) {
    const Fault* const fault = take(epoch, "serve");
    if (fault != nullptr) {
      die_after(fault->microseconds);
    }
  }

  void iterate(Job& job, const Batch& batch) {
    if (iterations_ == script_.number("leave", -1)) {
      job.stop();
    }
    if (take(iterations_, "forward") != nullptr) {
      strike();
    }
    if (const Fault* const fault = take(iterations_, "push")) {
      die_after(fault->microseconds);
    }
    job.backward(torch::nn::functional::cross_entropy(model_->forward(batch.data), batch.target));
    optimizer_.step();
    optimizer_.zero_grad();
    if (const Fault* const fault = take(iterations_, "free")) {
      die_after(fault->microseconds);
    }
    ++iterations_;
  }

  void reach_barrier(Job& job, std::int64_t epoch) {
    if (take(epoch, "barrier") != nullptr) {
      strike();
    }
    while (true) {
      try {
        job.sum({1.0});
        return;
      } catch (const Interrupted&) {
      }
    }
  }

  void write_end(Job& job) {
    double digest = 0.0;
    for (const at::Tensor& parameter : model_->parameters()) {
      digest += parameter.detach().to(at::kDouble).abs().sum().item<double>();
    }
    std::ofstream file(script_.folder + "/" + std::to_string(getpid()) + ".end");
    file.precision(17);
    file << "ranks " << job.size() << " complete " << (job.ledger().complete() ? 1 : 0) << " sent "
         << job.push_counts().sent << " applied " << job.push_counts().applied << " digest " << digest << " used";
    for (const auto& [epoch, samples] : used_) {
      file << " " << samples;
    }
    file << " events" << events_ << std::endl;
  }

  const Script script_;
  torch::nn::Sequential model_;
  torch::optim::SGD optimizer_;
  int first_rank_ = 0;
  std::int64_t iterations_ = 0;
  std::map<std::int64_t, std::int64_t> used_;  // by epoch
  std::string events_;
};

}  // namespace
}  // namespace isochron

int main(int count, char** words) {
  at::set_num_threads(1);
  try {
    isochron::Subject(isochron::read_script(count, words)).train();
    return 0;
  } catch (const isochron::Error& error) {
    std::cerr << "async_worker: " << error.what() << std::endl;
    return 3;
  }
}
