#include "isochron/view/run_file.h"

#include <algorithm>
#include <type_traits>
#include <variant>

#include "isochron/core/trace/utf8.h"

namespace isochron::view {

bool RunFile::poll(const std::function<void(const io::RunLogLine&)>& also) {
  const auto take = [&](io::RunLogLine&& line) {
    if (also) {
      also(line);
    }
    const auto add = [&](auto& record) {
      if constexpr (std::is_same_v<std::decay_t<decltype(record)>, RunHeader>) {
        view_.emplace(std::move(record), cells_);
      } else {
        view_->add(record);
      }
    };
    std::visit(add, line);
  };
  return follower_.poll(take) > 0;
}

std::vector<std::string> run_names(
    const std::vector<std::filesystem::path>& files, const std::vector<std::string>& policies) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const bool tells = !policies[i].empty() && std::ranges::count(policies, policies[i]) == 1;
    names.push_back(tells ? policies[i] : to_utf8(files[i].stem().string()));
  }
  return names;
}

}  // namespace isochron::view
