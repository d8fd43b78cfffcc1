#include "isochron/data/first_samples.h"

#include <algorithm>
#include <utility>

#include "isochron/core/error.h"

namespace isochron::data {
namespace {

class FirstSamples final : public Dataset {
 public:
  FirstSamples(std::shared_ptr<const Dataset> whole, std::int64_t count) : whole_(std::move(whole)), count_(count) {}

  [[nodiscard]] std::int64_t size() const override { return count_; }
  [[nodiscard]] const SampleShape& shape() const override { return whole_->shape(); }
  [[nodiscard]] std::int64_t classes() const override { return whole_->classes(); }
  [[nodiscard]] std::span<const std::int32_t> lengths() const override {
    const auto all = whole_->lengths();
    return all.first(std::min(all.size(), static_cast<std::size_t>(count_)));
  }
  std::int64_t read(std::int64_t index, std::span<std::byte> out) const override {
    check_read(index, out);
    return whole_->read(index, out);
  }

 private:
  std::shared_ptr<const Dataset> whole_;
  std::int64_t count_;
};

}  // namespace

std::shared_ptr<const Dataset> first_samples(std::shared_ptr<const Dataset> dataset, std::int64_t count) {
  require_between("number of samples", count, 1, dataset->size());
  return std::make_shared<FirstSamples>(std::move(dataset), count);
}

}  // namespace isochron::data
