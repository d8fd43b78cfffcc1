#include "isochron/engine/exchange.h"

#include <algorithm>
#include <cstring>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "isochron/core/error.h"
#include "isochron/core/trace/json.h"

namespace isochron {
namespace {

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

at::Tensor size_of(const std::string& text) {
  return as_tensor({static_cast<double>(text.size())});
}

// No length is believed beyond what a text may have: memory would be taken for it.
std::int64_t checked_length(double length, const std::string& whose) {
  if (!(length >= 0.0 && length <= static_cast<double>(kMostText))) {
    throw Error(
        "a text of " + whose + " would have " + json_number(length) + " bytes; permitted: up to " +
        std::to_string(kMostText));
  }
  return static_cast<std::int64_t>(length);
}

std::string rank_name(int rank) {
  return "rank " + std::to_string(rank);
}

}  // namespace

std::vector<std::string> all_gather(const Group& group, const std::string& text) {
  const at::Tensor sizes = gather(group, size_of(text));
  std::vector<std::int64_t> lengths;
  lengths.reserve(static_cast<std::size_t>(group->getSize()));
  for (int rank = 0; rank < group->getSize(); ++rank) {
    lengths.push_back(checked_length(sizes[rank].item<double>(), rank_name(rank)));
  }
  const at::Tensor bytes = gather(group, as_bytes(text, std::max(std::ranges::max(lengths), std::int64_t{1})));
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < lengths.size(); ++rank) {
    const at::Tensor row = bytes[static_cast<std::int64_t>(rank)];
    texts.emplace_back(static_cast<const char*>(row.const_data_ptr()), static_cast<std::size_t>(lengths[rank]));
  }
  return texts;
}

std::string broadcast(const Group& group, const std::string& text) {
  std::vector<at::Tensor> size{size_of(text)};
  group->broadcast(size)->wait();
  const std::int64_t length = checked_length(size.front().item<double>(), rank_name(0));
  std::vector<at::Tensor> bytes{group->getRank() == 0 ? as_bytes(text, length) : at::empty({length}, at::kByte)};
  if (length > 0) {
    group->broadcast(bytes)->wait();
  }
  return {static_cast<const char*>(bytes.front().const_data_ptr()), static_cast<std::size_t>(length)};
}

void send_text(const Group& group, const std::string& text, int to) {
  std::vector<at::Tensor> size{size_of(text)};
  group->send(size, to, kTextTag)->wait();
  checked_length(static_cast<double>(text.size()), rank_name(group->getRank()));  // after the receiver, who ends, too
  std::vector<at::Tensor> bytes{as_bytes(text, std::ssize(text))};
  group->send(bytes, to, kTextTag)->wait();
}

std::string receive_text(const Group& group, int from) {
  std::vector<at::Tensor> size{as_tensor({0.0})};
  group->recv(size, from, kTextTag)->wait();
  const std::int64_t length = checked_length(size.front().item<double>(), rank_name(from));
  std::vector<at::Tensor> bytes{at::empty({length}, at::kByte)};
  group->recv(bytes, from, kTextTag)->wait();
  return {static_cast<const char*>(bytes.front().const_data_ptr()), static_cast<std::size_t>(length)};
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
