// Attention over documents that are packed one behind the other, each over itself alone.
//
// A mask over all of them together would cost the square of their tokens. Instead documents of like length, the
// shortest at least half as long as the longest, are brought together and filled up to the longest of their group: at
// most a few groups, and at most four times the attention that is needed. What is filled up lies behind a document's
// end, where causal attention does not look. O(tokens) once a forward pass, on the CPU; apply() is two gathers on the
// device.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace isochron::model {

class DocumentGroups {
 public:
  // The place of every token within its document, from 0 on.
  explicit DocumentGroups(const at::Tensor& places);

  // From [1, tokens, a] to [1, tokens, b]: `function` turns [documents, length, a] of every group into
  // [documents, length, b], where a place depends on those before it only.
  using Function = std::function<at::Tensor(const at::Tensor&)>;
  at::Tensor apply(const at::Tensor& packed, const Function& function) const;

 private:
  struct Group {
    std::int64_t documents = 0;
    std::int64_t length = 0;
    at::Tensor tokens;  // [documents * length]: which token is there; where there is none, some other
  };
  std::vector<Group> groups_;
  at::Tensor places_;  // [tokens]: where each of them is among the groups' results
};

}  // namespace isochron::model
