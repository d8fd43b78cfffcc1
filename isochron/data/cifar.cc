#include "isochron/data/cifar.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <utility>

namespace isochron::data {
namespace {

constexpr std::int64_t kImageBytes = 3072;  // 3 x 32 x 32

struct Format {
  std::vector<int> classes;  // of each label byte; the last is the one to learn

  [[nodiscard]] std::int64_t label_bytes() const { return std::ssize(classes); }
  [[nodiscard]] std::int64_t record_bytes() const { return label_bytes() + kImageBytes; }
};

Format format_of(Cifar kind) {
  return kind == Cifar::k10 ? Format{{10}} : Format{{20, 100}};
}

class CifarDataset final : public Dataset {
 public:
  CifarDataset(std::vector<std::unique_ptr<ByteSource>> files, Format format)
      : format_(std::move(format)), files_(std::move(files)) {
    for (const auto& file : files_) {
      read_labels(*file);
      ends_.push_back(size());
    }
  }

  [[nodiscard]] std::int64_t size() const override { return std::ssize(labels_); }
  [[nodiscard]] const SampleShape& shape() const override { return shape_; }
  [[nodiscard]] std::int64_t classes() const override { return format_.classes.back(); }

  std::int64_t read(std::int64_t index, std::span<std::byte> out) const override {
    check_read(index, out);
    const auto file = static_cast<std::size_t>(std::ranges::upper_bound(ends_, index) - ends_.begin());
    const std::int64_t record = index - (file == 0 ? 0 : ends_[file - 1]);
    files_[file]->read(record * format_.record_bytes() + format_.label_bytes(), out);
    return std::to_integer<std::int64_t>(labels_[static_cast<std::size_t>(index)]);
  }

 private:
  void read_labels(const ByteSource& file) {
    if (file.size() == 0 || file.size() % format_.record_bytes() != 0) {
      refuse(
          file,
          "it has " + std::to_string(file.size()) + " bytes",
          "records of " + std::to_string(format_.record_bytes()) + ", 1 or more");
    }
    std::array<std::byte, 2> buffer{};
    const auto labels = std::span(buffer).first(format_.classes.size());
    for (std::int64_t record = 0; record < file.size() / format_.record_bytes(); ++record) {
      file.read(record * format_.record_bytes(), labels);
      check_labels(file, record, labels);
      labels_.push_back(labels.back());
    }
  }

  void check_labels(const ByteSource& file, std::int64_t record, std::span<const std::byte> labels) const {
    for (std::size_t i = 0; i < labels.size(); ++i) {
      if (const int label = std::to_integer<int>(labels[i]); label >= format_.classes[i]) {
        refuse(
            file,
            "a label of record " + std::to_string(record) + " is " + std::to_string(label),
            "0 to " + std::to_string(format_.classes[i] - 1));
      }
    }
  }

  Format format_;
  SampleShape shape_{.sizes = {3, 32, 32}};
  std::vector<std::unique_ptr<ByteSource>> files_;
  std::vector<std::int64_t> ends_;  // samples in the files up to and with this one
  std::vector<std::byte> labels_;
};

}  // namespace

std::unique_ptr<Dataset> read_cifar(std::vector<std::unique_ptr<ByteSource>> files, Cifar kind) {
  if (files.empty()) {
    throw std::invalid_argument("the CIFAR dataset has 0 files; permitted: 1 or more");
  }
  return std::make_unique<CifarDataset>(std::move(files), format_of(kind));
}

std::unique_ptr<Dataset> open_cifar(std::span<const std::filesystem::path> files, Cifar kind) {
  std::vector<std::unique_ptr<ByteSource>> sources;
  sources.reserve(files.size());
  for (const auto& file : files) {
    sources.push_back(open_file(file));
  }
  return read_cifar(std::move(sources), kind);
}

}  // namespace isochron::data
