#include "isochron/cli/help.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace isochron::cli {
namespace {

/// Letters to insert, remove or replace, and neighbours to swap (optimal string alignment).
std::size_t slips_between(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last;
  std::vector<std::size_t> last(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::vector<std::size_t> row(b.size() + 1, i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
    before_last = std::exchange(last, std::move(row));
  }
  return last.back();
}

}  // namespace

std::string HelpFormatter::make_option_name(const CLI::Option* option, bool is_positional) const {
  const std::vector<std::string>& names = option->get_lnames();
  if (is_positional || names.size() < 2) {
    return CLI::Formatter::make_option_name(option, is_positional);
  }
  return (option->get_fnames().empty() ? "--" : "--[no-]") + names.front();
}

std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
  return option->get_type_size() == 0 ? "" : " " + option->get_type_name();
}

std::string HelpFormatter::make_option_desc(const CLI::Option* option) const {
  const std::string standard = option->get_default_str();
  return option->get_description() + (standard.empty() ? "" : " [" + standard + "]");
}

std::vector<std::string> command_names(const CLI::App& program) {
  std::vector<std::string> names;
  for (const CLI::App* const command : program.get_subcommands({})) {
    if (!command->get_group().empty()) {
      names.push_back(command->get_name());
    }
  }
  return names;
}

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* const option : command.get_options()) {
    if (!option->get_lnames().empty()) {
      names.push_back("--" + option->get_lnames().front());
    }
  }
  return names;
}

std::string similar_name(std::string_view word, const std::vector<std::string>& names) {
  std::size_t least = std::min<std::size_t>(3, word.size() / 3 + 1);  // so many slips make another word
  std::string best;
  for (const std::string& name : names) {
    if (const std::size_t slips = slips_between(word, name); slips < least) {
      least = slips;
      best = name;
    }
  }
  return best;
}

}  // namespace isochron::cli
