// A worker of a real job that does to itself what the command line says: dies, stops, runs out of memory, computes
// nonsense, becomes slow, asks for company. After every step it writes down what it holds, for the test to compare.
//
//   elastic_worker FOLDER KEY=VALUE… STEP:WORKER:FAULT[:PARAMETER]…
//
// Keys: steps, batch, samples, timeout (ms), model (norm: with BatchNorm; plain), numbers, save (steps), evaluate
// (steps), name, pace (ms that a step takes at least), await (workers without whom each of the last ten steps takes a
// second more), memory (samples that it holds), appetite (MiB that a sample takes while its loss is computed), networks
// (2: a second one, with an optimizer and a backward pass of its own, learns from what the first puts out after its
// step), signal (in the place of SIGKILL, where a worker dies), ending (exit: it leaves by _exit(0) there; error: it
// raises one), round (local steps of a round: steps are rounds then), outer (of rounds), momentum (in hundredths),
// compression. A fault comes once, in that step of the worker with that id, in the first worker if it is "first"; in a
// round in the local step that "local" says, the first otherwise.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <malloc.h>
#include <sys/resource.h>
#include <torch/torch.h>
#include <unistd.h>

#include "isochron/data/synthetic_images.h"
#include "isochron/engine/job.h"

namespace isochron {
namespace {

using namespace std::chrono_literals;

struct Fault {
  std::int64_t step = 0;
  std::string worker;  // an id, or "first"
  std::string what;
  double parameter = 0.0;
};

struct Script {
  std::string folder;
  std::map<std::string, std::string> keys;
  std::vector<Fault> faults;
  std::vector<std::string> words;  // to start another one like this

  std::int64_t number(const std::string& key, std::int64_t otherwise) const {
    const auto found = keys.find(key);
    return found == keys.end() ? otherwise : std::stoll(found->second);
  }
  std::string text(const std::string& key, const std::string& otherwise) const {
    const auto found = keys.find(key);
    return found == keys.end() ? otherwise : found->second;
  }
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

Script read_script(int count, char** words) {
  Script script{.folder = words[1]};
  script.words = {words[0], words[1]};
  for (int i = 2; i < count; ++i) {
    const std::string word = words[i];
    if (const auto sign = word.find('='); sign != std::string::npos) {
      script.keys[word.substr(0, sign)] = word.substr(sign + 1);
      if (!word.starts_with("name=")) {
        script.words.push_back(word);
      }
      continue;
    }
    const auto parts = split(word, ':');
    script.faults.push_back(
        {.step = std::stoll(parts[0]),
         .worker = parts[1],
         .what = parts[2],
         .parameter = parts.size() > 3 ? std::stod(parts[3]) : 0.0});
    script.words.push_back(word);
  }
  return script;
}

torch::nn::Sequential make_model(bool with_norm) {
  using namespace torch::nn;
  torch::manual_seed(3);
  if (with_norm) {
    return Sequential(Conv2d(Conv2dOptions(1, 8, 3).bias(false)), BatchNorm2d(8), ReLU(), Flatten(), Linear(8 * 36, 4));
  }
  return Sequential(Flatten(), Linear(64, 64), Tanh(), Linear(64, 4));
}

torch::nn::Linear make_second() {
  torch::manual_seed(4);
  return torch::nn::Linear(4, 4);
}

// From now on the kernel gives this process so much more and then refuses.
void limit_memory(double mebibytes) {
  mallopt(M_MMAP_THRESHOLD, 1 << 17);  // what is freed goes back at once, so that the sum is what counts
  std::ifstream status("/proc/self/status");
  std::string word;
  double taken_kib = 0.0;
  while (status >> word && word != "VmData:") {
  }
  status >> taken_kib;
  const auto bytes = static_cast<rlim_t>(taken_kib * 1024.0 + mebibytes * 1048576.0);
  const rlimit limit{.rlim_cur = bytes, .rlim_max = bytes};
  setrlimit(RLIMIT_DATA, &limit);
}

std::uint64_t digest(const torch::nn::Module& model, std::uint64_t key) {
  const auto add = [&key](const at::Tensor& tensor) {
    const at::Tensor flat = tensor.detach().contiguous().view({-1}).view(at::kByte);
    const auto* const bytes = flat.const_data_ptr<std::uint8_t>();
    for (std::int64_t i = 0; i < flat.numel(); ++i) {
      key = key * 1099511628211ULL + bytes[i];
    }
  };
  for (const at::Tensor& parameter : model.parameters()) {
    add(parameter);
  }
  for (const at::Tensor& buffer : model.buffers()) {
    add(buffer);
  }
  return key;
}

class Subject {
 public:
  explicit Subject(Script script)
      : script_(std::move(script)),
        model_(make_model(script_.text("model", "norm") == "norm")),
        optimizer_(
            model_->parameters(),
            torch::optim::SGDOptions(0.05).momentum(static_cast<double>(script_.number("momentum", 90)) / 100.0)),
        job_(options()) {
    if (has_second()) {
      job_.prepare({*model_, *second_}, {optimizer_, second_optimizer_});
    } else {
      job_.prepare(*model_, optimizer_);
    }
  }

  void train() {
    const std::shared_ptr<const data::Dataset> dataset = data::synthetic_images(
        {.samples = script_.number("samples", 600), .classes = 4, .channels = 1, .height = 8, .width = 8, .seed = 1});
    const std::int64_t steps = script_.number("steps", 20);
    for ([[maybe_unused]] const auto epoch : job_.epochs(1'000'000)) {
      for (const Batch& batch : job_.loader(dataset)) {
        if (job_.step() >= steps) {
          job_.stop();
        }
        one_step(batch);
      }
      write(std::string("ledger ") + (job_.ledger().complete() ? "complete" : "incomplete"));
      if (job_.stopping()) {
        break;
      }
    }
    write("end " + std::to_string(job_.step()) + " workers " + std::to_string(job_.size()));
    std::ofstream file(script_.folder + "/" + std::to_string(getpid()) + ".parameters");
    file.precision(9);
    for (const at::Tensor& parameter : model_->parameters()) {
      const at::Tensor flat = parameter.detach().contiguous();
      for (std::int64_t i = 0; i < flat.numel(); ++i) {
        file << flat.const_data_ptr<float>()[i] << '\n';
      }
    }
    file.close();
    job_.close();
  }

 private:
  bool has_second() const { return script_.number("networks", 1) == 2; }

  JobOptions options() {
    JobOptions options{{.global_batch = script_.number("batch", 48), .policy = script_.text("policy", "isochron")}};
    options.seed = 7;
    options.timeout = static_cast<double>(script_.number("timeout", 60'000)) / 1000.0;
    options.name = script_.text("name", "");
    const std::string numbers = script_.text("numbers", "stop");
    options.on_nonfinite = parse_name(kOnNonFiniteNames, "numbers", numbers);
    options.gradients.compression = parse_name(kCompressionNames, "compression", script_.text("compression", "none"));
    if (const std::int64_t round = script_.number("round", 0); round > 0) {
      options.sync = Sync::kLocal;
      options.rounds.steps = round;
      options.rounds.outer = parse_name(kOuterNames, "outer", script_.text("outer", "average"));
    }
    options.on_event = [this](const EventRecord& event) {
      write(
          "event " + std::to_string(event.step) + " " + event.event + " " + std::to_string(event.worker) + " " +
          event.words);
      note_join(event);
    };
    options.warn = [this](const std::string& words) { write("warning " + words); };
    options.join_requests = [this]() -> std::optional<JoinRequest> {
      if (const Fault* const fault = take("join")) {
        auto words = script_.words;
        words.push_back("name=joined-at-" + std::to_string(fault->step));
        return JoinRequest{.command = words};
      }
      return std::nullopt;
    };
    return options;
  }

  std::string my_id() const { return std::to_string(job_.workers()[static_cast<std::size_t>(job_.rank())].id); }

  // Another first worker does not ask again for those who have come.
  void note_join(const EventRecord& event) {
    for (const Fault& fault : script_.faults) {
      if (fault.what == "join" && event.event == "join" && event.words == "joined-at-" + std::to_string(fault.step)) {
        taken_[&fault] = true;
      }
    }
  }

  // The fault that is due here, once.
  const Fault* take(const std::string& what) {
    for (const Fault& fault : script_.faults) {
      const bool mine = fault.worker == my_id() || (fault.worker == "first" && job_.is_first());
      // A request to join may come late, since it is looked at between steps only.
      const bool due = what == "join" ? job_.step() >= fault.step && fault.step >= first_step_
                                      : job_.step() == fault.step && job_.local_step() == script_.number("local", 0);
      if (fault.what == what && mine && due && !taken_[&fault]) {
        taken_[&fault] = true;
        return &fault;
      }
    }
    return nullptr;
  }

  // The file says when.
  void die() const {
    std::ofstream(script_.folder + "/struck") << "now" << std::endl;
    const std::string ending = script_.text("ending", "signal");
    if (ending == "exit") {
      _exit(0);
    }
    if (ending == "error") {
      throw std::runtime_error("an error that nobody catches");
    }
    raise(static_cast<int>(script_.number("signal", SIGKILL)));
  }

  void die_if(const std::string& what) {
    if (take(what) != nullptr) {
      die();
    }
  }

  // In the middle of whatever comes next.
  void die_soon_if(const std::string& what) {
    if (const Fault* const fault = take(what)) {
      std::thread([this, microseconds = fault->parameter] {
        std::this_thread::sleep_for(std::chrono::microseconds(std::llround(microseconds)));
        die();
      }).detach();
    }
  }

  at::Tensor loss(const at::Tensor& data, const at::Tensor& target) {
    std::this_thread::sleep_for(std::chrono::milliseconds(script_.number("pace", 0)));
    if (job_.size() < script_.number("await", 0) && job_.step() + 10 >= script_.number("steps", 20)) {
      std::this_thread::sleep_for(3s);
    }
    const auto exhausted = script_.number("memory", std::numeric_limits<std::int64_t>::max());
    if (data.size(0) > exhausted) {
      at::empty({std::int64_t{1} << 46});  // PyTorch's own failure
    }
    const at::Tensor working_space =
        at::empty({data.size(0), script_.number("appetite", 0) << 20}, at::TensorOptions(at::kByte));
    if (const Fault* const fault = take("slow")) {
      seconds_per_sample_ = fault->parameter;
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds_per_sample_ * static_cast<double>(data.size(0))));
    at::Tensor value = torch::nn::functional::cross_entropy(model_->forward(data), target);
    if (take("nan") != nullptr || (always_nan_ >= 0 && job_.step() == always_nan_)) {
      value = value * std::numeric_limits<double>::quiet_NaN();
    }
    if (take("always-nan") != nullptr) {
      always_nan_ = job_.step();
      value = value * std::numeric_limits<double>::quiet_NaN();
    }
    if (take("nan-gradient") != nullptr || nan_gradient_ == job_.step()) {
      nan_gradient_ = job_.step();
      value.register_hook(
          [](const at::Tensor& gradient) { return gradient * std::numeric_limits<double>::infinity() * 0; });
    }
    return value;
  }

  void one_step(const Batch& batch) {
    first_step_ = std::min(first_step_, job_.step());
    die_if("forward");
    if (take("stop") != nullptr) {
      raise(SIGSTOP);
    }
    if (take("memory") != nullptr) {
      failing_ = true;
    }
    if (const Fault* const fault = take("limit")) {
      limit_memory(fault->parameter);
    }
    die_soon_if("reduce");
    const std::int64_t wanted = job_.step();
    if (has_second()) {
      two_passes(batch);
    } else {
      one_pass(batch);
    }
    job_.finish_step();
    if (job_.step() <= wanted) {
      return;
    }
    const StepRecord& record = job_.last_step();
    char text[160];
    std::snprintf(
        text,
        sizeof text,
        "step %lld digest %016llx loss %.9g workers %d",
        static_cast<long long>(record.step),
        static_cast<unsigned long long>(digest(*second_, digest(*model_, 1))),
        record.loss,
        job_.size());
    write(text);
    between_steps();
  }

  Job::LossOf loss_that_may_fail() {
    return [this](const at::Tensor& data, const at::Tensor& target) {
      // With a single sample there would be nothing smaller to try, and the worker would end.
      if (std::exchange(failing_, false) && data.size(0) > 1) {
        at::empty({std::int64_t{1} << 46});
      }
      return loss(data, target);
    };
  }

  void one_pass(const Batch& batch) {
    if (job_.backward(batch, loss_that_may_fail())) {
      die_if("before-optimizer");
      die_soon_if("optimizer");
      optimizer_.step();
      die_if("after-optimizer");
    }
    optimizer_.zero_grad();
  }

  // As people write it: nobody looks whether a pass has happened.
  void two_passes(const Batch& batch) {
    optimizer_.zero_grad();
    job_.backward(batch, loss_that_may_fail(), optimizer_);
    optimizer_.step();
    die_if("between-passes");
    if (take("memory-between") != nullptr) {
      failing_ = true;
    }
    die_soon_if("second-reduce");
    second_optimizer_.zero_grad();
    const auto second_loss = [this](const at::Tensor& data, const at::Tensor& target) {
      if (std::exchange(failing_, false) && data.size(0) > 1) {
        at::empty({std::int64_t{1} << 46});
      }
      const at::Tensor judged = model_->forward(data).detach();
      at::Tensor value = torch::nn::functional::cross_entropy(second_->forward(judged), target);
      if (take("second-nan") != nullptr) {
        value = value * std::numeric_limits<double>::quiet_NaN();
      }
      return value;
    };
    job_.backward(batch, second_loss, second_optimizer_);
    die_if("before-optimizer");
    second_optimizer_.step();
    die_if("after-optimizer");
  }

  void between_steps() {
    const std::int64_t done = job_.step();
    if (const std::int64_t every = script_.number("save", 0); every > 0 && done % every == 0) {
      die_soon_if("save");
      job_.save(script_.folder + "/step-" + std::to_string(done) + ".ckpt");
    }
    if (const std::int64_t every = script_.number("evaluate", 0); every > 0 && done % every == 0) {
      die_if("evaluate");
      die_soon_if("evaluate-soon");
      while (true) {
        try {
          write("sum " + std::to_string(done) + " " + std::to_string(job_.sum({1.0}).front()));
          break;
        } catch (const Interrupted&) {
        }
      }
    }
  }

  void write(const std::string& line) {
    if (!log_.is_open()) {
      log_.open(script_.folder + "/" + std::to_string(getpid()) + ".log", std::ios::app);
    }
    log_ << line << std::endl;
  }

  const Script script_;
  torch::nn::Sequential model_;
  torch::optim::SGD optimizer_;
  torch::nn::Linear second_ = make_second();
  torch::optim::Adam second_optimizer_{second_->parameters(), torch::optim::AdamOptions(0.05)};
  std::ofstream log_;
  std::map<const Fault*, bool> taken_;
  double seconds_per_sample_ = 0.0;
  std::int64_t first_step_ = std::numeric_limits<std::int64_t>::max();  // of this worker
  bool failing_ = false;
  std::int64_t always_nan_ = -1;
  std::int64_t nan_gradient_ = -1;
  Job job_;
};

}  // namespace
}  // namespace isochron

int main(int count, char** words) {
  at::set_num_threads(1);
  try {
    isochron::Subject(isochron::read_script(count, words)).train();
    return 0;
  } catch (const isochron::Error& error) {
    std::cerr << "elastic_worker: " << error.what() << std::endl;
    return 3;
  }
}
