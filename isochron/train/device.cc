#include "isochron/train/device.h"

#include <charconv>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include <torch/cuda.h>

namespace isochron::train {
namespace {

constexpr std::string_view kCuda = "cuda";

// All of `text` as a number, 0 or more; -1 if it is none.
int parse(std::string_view text) {
  int number = -1;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);  // NOLINT(*-stringview-data-usage): up to end
  return error == std::errc{} && rest == end && number >= 0 ? number : -1;
}

// As the starter of the job has it; 0 if nobody says.
int number_on_host() {
  for (const char* const variable : {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID", "LOCAL_RANK"}) {
    if (const char* const text = std::getenv(variable); text != nullptr && parse(text) >= 0) {
      return parse(text);
    }
  }
  return 0;
}

}  // namespace

c10::Device choose_device(const std::string& name) {
  const auto gpus = static_cast<int>(torch::cuda::device_count());  // NOLINT(bugprone-signed-char-misuse): it is none
  if (name == "cpu" || (name == "auto" && gpus == 0)) {
    return {c10::DeviceType::CPU};
  }
  const bool numbered = name.starts_with("cuda:");
  const int first_choice = gpus > 0 ? number_on_host() % gpus : 0;
  const int gpu = numbered ? parse(std::string_view(name).substr(kCuda.size() + 1)) : first_choice;
  if ((!numbered && name != kCuda && name != "auto") || gpu < 0) {
    throw std::invalid_argument("device is '" + name + "'; permitted: cpu, cuda, cuda:N, auto");
  }
  if (gpus == 0) {
    throw std::invalid_argument(
        "device is '" + name + "'; permitted: cpu (this machine has no GPU that LibTorch can use)");
  }
  if (gpu >= gpus) {
    throw std::invalid_argument(
        "device is '" + name + "'; permitted: one of the " + std::to_string(gpus) + " GPUs here");
  }
  return {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(gpu)};
}

}  // namespace isochron::train
