// What forward computes in on this thread while this lives. With Precision::kBf16 it is PyTorch's autocast: matrix
// products and convolutions in bfloat16, what needs the precision in float; parameters and gradients stay as they are.
#pragma once

#include <ATen/autocast_mode.h>

#include "isochron/core/job_settings.h"

namespace isochron {

class Autocast {
 public:
  Autocast(Precision precision, c10::DeviceType device)
      : device_(device),
        outer_enabled_(at::autocast::is_autocast_enabled(device)),
        outer_type_(at::autocast::get_autocast_dtype(device)) {
    at::autocast::increment_nesting();
    if (precision == Precision::kBf16) {
      at::autocast::set_autocast_dtype(device, at::kBFloat16);
      at::autocast::set_autocast_enabled(device, true);
    }
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
  ~Autocast() {
    at::autocast::set_autocast_enabled(device_, outer_enabled_);
    at::autocast::set_autocast_dtype(device_, outer_type_);
    if (at::autocast::decrement_nesting() == 0) {
      at::autocast::clear_cache();  // copies of parameters, which the optimizer is about to change
    }
  }

 private:
  const c10::DeviceType device_;
  const bool outer_enabled_;
  const at::ScalarType outer_type_;
};

}  // namespace isochron
