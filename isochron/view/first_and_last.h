// A list that keeps its first and its last entries and counts the ones between: long runs have more to tell than
// anybody reads.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>
#include <vector>

namespace isochron::view {

template <class Entry>
class FirstAndLast {
 public:
  FirstAndLast(std::size_t first, std::size_t last) : most_first_(first), most_last_(last) {}

  void add(Entry entry) {
    ++total_;
    if (first_.size() < most_first_) {
      first_.push_back(std::move(entry));
      return;
    }
    last_.push_back(std::move(entry));
    if (last_.size() > most_last_) {
      last_.pop_front();
    }
  }

  [[nodiscard]] std::size_t total() const { return total_; }
  /// In order; the gap, if there is one, comes after the first ones.
  [[nodiscard]] std::vector<Entry> kept() const {
    std::vector<Entry> all(first_);
    all.insert(all.end(), last_.begin(), last_.end());
    return all;
  }
  [[nodiscard]] const Entry& back() const { return last_.empty() ? first_.back() : last_.back(); }

 private:
  std::size_t most_first_;
  std::size_t most_last_;
  std::size_t total_ = 0;
  std::vector<Entry> first_;
  std::deque<Entry> last_;
};

}  // namespace isochron::view
