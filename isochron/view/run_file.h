// A run log as a view.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "isochron/io/run_log_follower.h"
#include "isochron/view/run_view.h"

namespace isochron::view {

class RunFile {
 public:
  /// Throws std::invalid_argument naming the file if it cannot be read.
  explicit RunFile(const std::filesystem::path& path, std::size_t cells = RunView::kDefaultCells)
      : follower_(path), cells_(cells) {}

  /// Takes in what the log has got since the last call; whether there was anything. `also` sees every record. Throws
  /// like io::RunLogFollower::poll.
  bool poll(const std::function<void(const io::RunLogLine&)>& also = {});

  /// Nothing before the header was read.
  [[nodiscard]] const std::optional<RunView>& view() const { return view_; }

 private:
  io::RunLogFollower follower_;
  std::size_t cells_;
  std::optional<RunView> view_;
};

/// What to call runs of these policies from these files: the policy, or where that is not unique, or not known, the
/// file.
[[nodiscard]] std::vector<std::string> run_names(
    const std::vector<std::filesystem::path>& files, const std::vector<std::string>& policies);

}  // namespace isochron::view
