#include "isochron/view/frame.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>

#include "isochron/core/trace/utf8.h"
#include "isochron/view/headline.h"

namespace isochron::view {
namespace {

constexpr std::size_t kFixedRows = 6;  // title, three lines of figures, an empty one, the workers' head

bool continues_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U;
}

std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return !continues_character(c); }));
}

/// The first `width` characters.
std::string cut(std::string_view text, std::size_t width) {
  std::size_t end = 0;
  for (std::size_t count = 0; end < text.size(); ++end) {
    count += continues_character(text[end]) ? 0U : 1U;
    if (count > width) {
      break;
    }
  }
  return std::string(text.substr(0, end));
}

std::string left(std::string_view text, std::size_t width) {
  const std::string result = cut(text, width);
  return result + std::string(width - width_of(result), ' ');
}

std::string right(std::string_view text, std::size_t width) {
  const std::string result = cut(text, width);
  return std::string(width - width_of(result), ' ') + result;
}

std::string duration(double seconds) {
  if (!std::isfinite(seconds)) {
    return "unknown";
  }
  if (seconds < 1e-3) {
    return grouped(1e6 * seconds, 0) + " us";
  }
  if (seconds < 0.9995) {
    return grouped(1e3 * seconds, seconds < 0.1 ? 1 : 0) + " ms";
  }
  if (seconds < 100.0) {
    return grouped(seconds, 2) + " s";
  }
  if (seconds < 1e7) {
    const auto split = [](long number) {
      return std::to_string(number / 60) + (number % 60 < 10 ? ":0" : ":") + std::to_string(number % 60);
    };
    const auto whole = static_cast<long>(seconds);
    return whole < 3600 ? split(whole) + " min" : split(whole / 60) + " h";
  }
  return grouped(seconds / 86400.0, 0) + " d";
}

/// A bar of up to `width` characters for a share of 0 to 1.
std::string bar(double share, std::size_t width, bool unicode) {
  const double length = std::clamp(std::isfinite(share) ? share : 0.0, 0.0, 1.0) * static_cast<double>(width);
  const auto whole = static_cast<std::size_t>(length);
  std::string text;
  for (std::size_t i = 0; i < whole; ++i) {
    text += unicode ? "█" : "#";
  }
  static constexpr std::string_view kParts[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  if (unicode && whole < width) {
    text += kParts[static_cast<std::size_t>((length - static_cast<double>(whole)) * 8.0)];
  }
  return left(text, width);
}

/// A line of clauses, what matters most first; those that do not fit are left out whole.
std::string line_of(const std::vector<std::string>& clauses, std::size_t width) {
  std::string line = cut(clauses.front(), width);
  for (auto clause = std::next(clauses.begin()); clause != clauses.end(); ++clause) {
    if (!clause->empty() && width_of(line) + 2 + width_of(*clause) <= width) {
      line += ", " + *clause;
    }
  }
  return line;
}

std::vector<std::string> title(const RunView& view) {
  const RunHeader& header = view.header();
  std::string what = "isochron " + header.program + ": " + in_words(header.policy);
  if (!header.cluster.empty()) {
    what += " on " + header.cluster;
  }
  std::vector<std::string> clauses{printable(what)};
  if (const double gain = view.summary().over_equal_shares; gain >= kWorthAWord) {
    clauses.push_back("now " + grouped(gain, 1) + " x equal shares");
  }
  if (!header.model.empty()) {
    clauses.push_back(printable(header.model + (header.dataset.empty() ? "" : " on " + header.dataset)));
  }
  return clauses;
}

/// What was computed in vain; nothing where samples are not filled up.
std::string padding(const RunView& view) {
  double work = 0.0;
  double wasted = 0.0;
  for (const WorkerTotals& worker : view.workers()) {
    work += worker.work;
    wasted += worker.padding;
  }
  return wasted > 0.0 ? "padding " + grouped(100.0 * wasted / work, 1) + " %" : "";
}

/// How much of the time workers wait in the middle of steps, which no split of the batch shortens.
std::string inner_waiting(const RunView& view) {
  double busy = 0.0;
  double waited = 0.0;
  for (const WorkerTotals& worker : view.workers()) {
    busy += worker.compute_seconds + worker.wait_seconds + worker.exchange_seconds;
    waited += worker.inner_wait_seconds;
  }
  return waited > 0.001 * busy ? "waiting within steps " + grouped(100.0 * waited / busy, 1) + " %" : "";
}

std::vector<std::string> progress(const RunView& view) {
  const Summary summary = view.summary();
  if (summary.steps == 0) {
    return {"waiting for the first step"};
  }
  const std::int64_t done = view.last().step + 1;
  const std::int64_t total = view.header().total_steps;
  const std::string of = total > 0 ? " of " + grouped(static_cast<double>(total), 0) : "";
  std::vector<std::string> clauses{"step " + grouped(static_cast<double>(done), 0) + of, duration(summary.seconds)};
  if (total > done && summary.step_seconds.p50 > 0.0) {
    const double each = summary.seconds / static_cast<double>(std::max<std::int64_t>(1, summary.steps));
    clauses.push_back("about " + duration(each * static_cast<double>(total - done)) + " to go");
  }
  if (std::isfinite(summary.loss)) {
    clauses.push_back("loss " + grouped(summary.loss, 4));
  }
  if (std::isfinite(summary.accuracy)) {
    clauses.push_back("accuracy " + grouped(100.0 * summary.accuracy, 1) + " %");
  }
  clauses.push_back(padding(view));
  clauses.push_back(inner_waiting(view));
  return clauses;
}

/// Short, so that a line of figures fits into 80 characters.
std::string rate(double samples_per_second) {
  return grouped(samples_per_second, samples_per_second < 1000.0 ? 1 : 0) + " samples/s";
}

std::vector<std::string> figures(const RunView& view) {
  const Summary summary = view.summary();
  return {
      "all: " + rate(summary.samples_per_second),
      "p50 " + duration(summary.step_seconds.p50) + " p99 " + duration(summary.step_seconds.p99),
      "balance " + grouped(summary.balance, 3),
      "utilization " + grouped(summary.utilization, 3)};
}

std::vector<std::string> last_figures(const RunView& view) {
  const RunView::Last& step = view.last();
  if (view.timeline().records() == 0) {
    return {""};
  }
  const RunMeter::Figures& now = view.meter().last();
  std::vector<std::string> clauses{
      "now: " + rate(now.samples_per_second),
      "step " + duration(step.seconds),
      "balance " + grouped(now.balance, 3),
      "utilization " + grouped(now.utilization, 3)};
  if (step.learning_rate_factor != 1.0) {
    clauses.push_back("learning rate x" + grouped(step.learning_rate_factor, 3));
  }
  return clauses;
}

/// The columns of the workers' table: a name, the batch, a bar that takes what is left, and times.
struct Columns {
  std::size_t name = 14;
  std::size_t bar = 10;
  explicit Columns(std::size_t columns) {
    constexpr std::size_t kNumbers = 8 + 1 + 8 + 9 + 9 + 9;  // batch, gap, share, three times
    const std::size_t rest = columns > kNumbers + name ? columns - kNumbers - name : 0;
    bar = std::min<std::size_t>(rest, 60);
    name += std::min<std::size_t>(rest - bar, 20);
  }
};

std::string head_row(const Columns& columns) {
  return left("worker", columns.name) + right("batch", 8) + " " + left("share of the step", columns.bar) +
         right("", 8) + right("compute", 9) + right("wait", 9) + right("comm", 9);
}

std::string worker_row(const WorkerTotals& worker, double total, const Columns& columns, bool unicode) {
  const std::string name = left(printable(worker.name), columns.name - 1) + " ";
  if (!worker.present) {
    return name + right("gone", 8);
  }
  if (worker.steps == 0) {
    return name + right("-", 8);
  }
  const double share = total > 0.0 ? static_cast<double>(worker.last.batch) / total : 0.0;
  return name + right(grouped(static_cast<double>(worker.last.batch), 0), 8) + " " + bar(share, columns.bar, unicode) +
         right(grouped(100.0 * share, 1) + " %", 8) + right(duration(worker.last.compute_seconds), 9) +
         right(duration(worker.last.wait_seconds), 9) + right(duration(worker.last.exchange_seconds), 9);
}

std::string note_row(const Note& note) {
  std::string text = right(grouped(static_cast<double>(note.step), 0), 9) + "  " + note.what;
  for (const std::string* const more : {&note.worker, &note.words}) {
    if (!more->empty()) {
      text += ": " + *more;
    }
  }
  return printable(text);
}

/// The last `count` events and decisions, the newest first.
std::vector<std::string> note_rows(const RunView& view, std::size_t count) {
  std::vector<Note> notes = view.decisions().kept();
  const std::vector<Note> events = view.events().kept();
  notes.insert(notes.end(), events.begin(), events.end());
  std::ranges::stable_sort(notes, [](const Note& a, const Note& b) { return a.seconds > b.seconds; });
  notes.resize(std::min(notes.size(), count));
  std::vector<std::string> rows;
  std::ranges::transform(notes, std::back_inserter(rows), note_row);
  return rows;
}

/// At most `most` rows; the last one says how many workers have none.
std::vector<std::string> worker_rows(const RunView& view, const FrameOptions& options, std::size_t most) {
  const std::vector<WorkerTotals>& workers = view.workers();
  most -= workers.size() > most ? 1U : 0U;
  const std::size_t first = std::min(options.first_worker, workers.size() > most ? workers.size() - most : 0);
  const std::size_t shown = std::min(most, workers.size() - first);
  const Columns columns(options.columns);
  std::vector<std::string> rows;
  for (std::size_t i = first; i < first + shown; ++i) {
    rows.push_back(worker_row(workers[i], view.last().samples, columns, options.unicode));
  }
  if (const std::size_t hidden = workers.size() - shown + view.workers_left_out(); hidden > 0) {
    rows.push_back(grouped(static_cast<double>(hidden), 0) + " more workers; up and down scroll");
  }
  return rows;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  const std::string clean = to_utf8(text);
  for (std::size_t i = 0; i < clean.size(); ++i) {
    const auto byte = static_cast<unsigned char>(clean[i]);
    // U+0080 to U+009F are control characters too, two bytes of which the first is C2.
    const bool is_c1 = byte == 0xC2U && static_cast<unsigned char>(clean[i + 1]) < 0xA0U;
    if (byte < 0x20U || byte == 0x7FU || is_c1) {
      result += ' ';
      i += is_c1 ? 1 : 0;
    } else {
      result += clean[i];
    }
  }
  return result;
}

std::vector<std::string> frame(const RunView& view, const FrameOptions& options) {
  const bool bounded = options.rows > 0;
  // An empty row, a head and three rows at least are for what was decided last.
  constexpr std::size_t kNoteRows = 5;
  const std::size_t for_workers =
      bounded ? std::max(options.rows, kFixedRows + kNoteRows + 1) - kFixedRows - kNoteRows : view.workers().size();
  const auto bold = [&](const std::string& text) { return options.colour ? "\033[1m" + text + "\033[0m" : text; };

  std::vector<std::string> lines{
      bold(line_of(title(view), options.columns)),
      line_of(progress(view), options.columns),
      line_of(last_figures(view), options.columns),
      line_of(figures(view), options.columns),
      "",
      bold(cut(head_row(Columns(options.columns)), options.columns))};
  for (const std::string& row : worker_rows(view, options, for_workers)) {
    lines.push_back(cut(row, options.columns));
  }
  lines.emplace_back();
  constexpr std::size_t kMostNotes = 10;  // where nothing bounds them
  const std::size_t left_over = bounded ? options.rows - std::min(options.rows, lines.size() + 1) : kMostNotes;
  if (left_over > 0) {
    lines.push_back(bold(cut("     step  last events and decisions", options.columns)));
    for (const std::string& row : note_rows(view, left_over)) {
      lines.push_back(cut(row, options.columns));
    }
  }
  if (bounded && lines.size() > options.rows) {
    lines.resize(options.rows);
  }
  return lines;
}

}  // namespace isochron::view
