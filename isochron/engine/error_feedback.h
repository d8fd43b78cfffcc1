// What rounding has taken from the gradients of this worker, which comes with its next ones.
//
// What is owed is the mean over the workers of their errors. They are kept by parameter, whatever is exchanged together
// and whoever owns which part, so that they stay when buckets, passes and members change. Two numbers a parameter: as
// they are, and as they were before the step. Not thread-safe.
#pragma once

#include <map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "isochron/engine/exchange.h"

namespace isochron {

class ErrorFeedback {
 public:
  // `parameters`: those of a checkpoint, the same on all workers. `members`: how many there are.
  ErrorFeedback(std::vector<at::Tensor> parameters, int members);

  // What errors of parameters of this type are kept in.
  static at::ScalarType wide(const std::vector<at::Tensor>& tensors);

  // One after the other, in wide() of these; zeros at first.
  at::Tensor of(const std::vector<at::Tensor>& parameters) const;
  void set(const std::vector<at::Tensor>& parameters, const at::Tensor& errors);

  // What they are now is what undo() gives back, for a step that does not happen.
  void remember() { before_ = errors_; }
  void undo() { errors_ = before_; }

  // Another number of workers takes the mean from now on; what those owe who stay is what they owed before.
  void follow(int members);

  // The mean over all workers, for a checkpoint; collective.
  at::Tensor mean(const Group& group) const;
  // All workers have the mean as theirs, so that all owe together what they owed. Undefined: nothing is owed.
  void restore(const at::Tensor& mean);

 private:
  using Errors = std::map<const c10::TensorImpl*, at::Tensor>;  // never changed in place

  const std::vector<at::Tensor> parameters_;
  int members_;
  Errors errors_;
  Errors before_;
};

}  // namespace isochron
