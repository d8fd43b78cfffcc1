#include "isochron/engine/exchange.h"

#include <algorithm>
#include <cstring>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace isochron {
namespace {

constexpr int kTextTag = 10;

at::Tensor as_tensor(const std::vector<double>& values) {
  at::Tensor tensor = at::empty({std::ssize(values)}, at::kDouble);
  std::ranges::copy(values, tensor.mutable_data_ptr<double>());
  return tensor;
}

at::Tensor as_bytes(const std::string& text, std::int64_t size) {
  at::Tensor bytes = at::zeros({size}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  return bytes;
}

// A row for every rank.
at::Tensor rows(const Group& group, const at::Tensor& mine) {
  return at::empty({group->getSize(), mine.numel()}, mine.options());
}

c10::intrusive_ptr<c10d::Work> start_gather(const Group& group, const at::Tensor& mine, const at::Tensor& all) {
  std::vector<std::vector<at::Tensor>> outputs{all.unbind()};
  std::vector<at::Tensor> inputs{mine};
  return group->allgather(outputs, inputs);
}

at::Tensor gather(const Group& group, const at::Tensor& mine) {
  at::Tensor all = rows(group, mine);
  start_gather(group, mine, all)->wait();
  return all;
}

}  // namespace

std::vector<std::string> all_gather(const Group& group, const std::string& text) {
  const at::Tensor sizes = gather(group, as_tensor({static_cast<double>(text.size())}));
  const auto longest = static_cast<std::int64_t>(sizes.max().item<double>());
  const at::Tensor bytes = gather(group, as_bytes(text, std::max(longest, std::int64_t{1})));
  std::vector<std::string> texts;
  for (int rank = 0; rank < group->getSize(); ++rank) {
    const auto size = static_cast<std::size_t>(sizes[rank].item<double>());
    texts.emplace_back(static_cast<const char*>(bytes[rank].const_data_ptr()), size);
  }
  return texts;
}

std::string broadcast(const Group& group, const std::string& text) {
  std::vector<at::Tensor> size{as_tensor({static_cast<double>(text.size())})};
  group->broadcast(size)->wait();
  const auto length = static_cast<std::int64_t>(size.front().item<double>());
  std::vector<at::Tensor> bytes{group->getRank() == 0 ? as_bytes(text, length) : at::empty({length}, at::kByte)};
  if (length > 0) {
    group->broadcast(bytes)->wait();
  }
  return {static_cast<const char*>(bytes.front().const_data_ptr()), static_cast<std::size_t>(length)};
}

void send_text(const Group& group, const std::string& text, int to) {
  std::vector<at::Tensor> size{as_tensor({static_cast<double>(text.size())})};
  group->send(size, to, kTextTag)->wait();
  std::vector<at::Tensor> bytes{as_bytes(text, std::ssize(text))};
  group->send(bytes, to, kTextTag)->wait();
}

std::string receive_text(const Group& group, int from) {
  std::vector<at::Tensor> size{as_tensor({0.0})};
  group->recv(size, from, kTextTag)->wait();
  std::vector<at::Tensor> bytes{at::empty({static_cast<std::int64_t>(size.front().item<double>())}, at::kByte)};
  group->recv(bytes, from, kTextTag)->wait();
  return {static_cast<const char*>(bytes.front().const_data_ptr()), static_cast<std::size_t>(bytes.front().numel())};
}

std::vector<double> sum(const Group& group, const std::vector<double>& values) {
  std::vector<at::Tensor> tensors{as_tensor(values)};
  group->allreduce(tensors)->wait();
  const auto* const first = tensors.front().const_data_ptr<double>();
  return {first, first + tensors.front().numel()};
}

ReportExchange::ReportExchange(const Group& group, const StepReport& mine)
    : mine_(at::empty({std::int64_t{kReportNumbers}}, at::kFloat)), all_(rows(group, mine_)) {
  std::ranges::copy(encode(mine), mine_.mutable_data_ptr<float>());
  work_ = start_gather(group, mine_, all_);
}

std::vector<StepReport> ReportExchange::wait() {
  work_->wait();
  return decode_reports({all_.const_data_ptr<float>(), static_cast<std::size_t>(all_.numel())});
}

}  // namespace isochron
