#include "isochron/cli/help.h"

namespace isochron::cli {

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

std::string command_names(const CLI::App& program) {
  std::string names;
  for (const CLI::App* const command : program.get_subcommands({})) {
    if (!command->get_group().empty()) {
      names += (names.empty() ? "" : ", ") + command->get_name();
    }
  }
  return names;
}

}  // namespace isochron::cli
