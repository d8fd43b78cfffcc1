#include "isochron/model/document_groups.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

namespace isochron::model {
namespace {

struct Document {
  std::int64_t first = 0;
  std::int64_t length = 0;
};

std::vector<Document> documents_of(const at::Tensor& places) {
  const auto* const place = places.const_data_ptr<std::int64_t>();
  std::vector<Document> documents;
  for (std::int64_t token = 0; token < places.numel(); ++token) {
    if (place[token] == 0 || documents.empty()) {
      documents.push_back({.first = token});
    }
    ++documents.back().length;
  }
  std::ranges::stable_sort(documents, std::ranges::greater(), &Document::length);
  return documents;
}

at::Tensor on_device(const std::vector<std::int64_t>& numbers, const at::Tensor& like) {
  const at::Tensor tensor = at::empty({std::ssize(numbers)}, at::kLong);
  std::ranges::copy(numbers, tensor.mutable_data_ptr<std::int64_t>());
  return tensor.to(like.device());
}

}  // namespace

DocumentGroups::DocumentGroups(const at::Tensor& places) {
  const std::vector<Document> documents = documents_of(places.cpu().contiguous());
  std::vector<std::int64_t> back(static_cast<std::size_t>(places.numel()));
  std::int64_t offset = 0;
  for (auto first = documents.begin(); first != documents.end();) {
    const auto last =
        std::find_if(first, documents.end(), [&](const Document& one) { return 2 * one.length < first->length; });
    Group group{.documents = last - first, .length = first->length};
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(group.documents * group.length));
    auto next = tokens.begin();
    for (; first != last; ++first, next += group.length, offset += group.length) {
      std::iota(next, next + first->length, first->first);
      std::iota(back.begin() + first->first, back.begin() + first->first + first->length, offset);
    }
    group.tokens = on_device(tokens, places);
    groups_.push_back(std::move(group));
  }
  places_ = on_device(back, places);
}

at::Tensor DocumentGroups::apply(const at::Tensor& packed, const Function& function) const {
  const at::Tensor rows = packed.squeeze(0);
  std::vector<at::Tensor> results;
  for (const Group& group : groups_) {
    const at::Tensor sequences = rows.index_select(0, group.tokens).unflatten(0, {group.documents, group.length});
    results.push_back(function(sequences).flatten(0, 1));
  }
  return at::cat(results).index_select(0, places_).unsqueeze(0);
}

}  // namespace isochron::model
