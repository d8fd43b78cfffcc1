#include "isochron/view/page_data.h"

#include <algorithm>
#include <vector>

#include "isochron/core/trace/json.h"
#include "isochron/view/columns.h"

namespace isochron::view {
namespace {

using Bins = std::vector<const Bin*>;

using Statistic = double (Spread::*)() const;

/// One value per bin.
template <class Value>
std::vector<double> values_of(const Bins& bins, Value value) {
  std::vector<double> values(bins.size());
  std::ranges::transform(bins, values.begin(), [&](const Bin* bin) { return static_cast<double>(value(*bin)); });
  return values;
}

template <class Value>
std::string floats(const Bins& bins, Value value) {
  return float_column(values_of(bins, value));
}

template <class Value>
std::string doubles(const Bins& bins, Value value) {
  return double_column(values_of(bins, value));
}

/// One value per worker and bin, all bins of a worker together.
std::string matrix(const Bins& bins, std::size_t workers, Spread Cell::* field, Statistic statistic) {
  static const Cell absent;
  std::vector<double> values;
  values.reserve(bins.size() * workers);
  for (std::size_t worker = 0; worker < workers; ++worker) {
    for (const Bin* const bin : bins) {
      const Cell& cell = worker < bin->cells.size() ? bin->cells[worker] : absent;
      values.push_back(((cell.*field).*statistic)());
    }
  }
  return float_column(values);
}

/// {"mean", "low", "high"}; the last two only where bins are wider than a step. `column` writes one statistic.
template <class Column>
std::string spread(bool exact, Column column) {
  JsonObject object;
  object.raw("mean", column(&Spread::mean));
  if (!exact) {
    object.raw("low", column(&Spread::low)).raw("high", column(&Spread::high));
  }
  return object.str();
}

/// Most runs have no offsets worth a column.
bool has_offsets(const Bins& bins) {
  constexpr double kNoticeable = 1e-6;  // seconds
  return std::ranges::any_of(bins, [&](const Bin* bin) {
    return std::ranges::any_of(bin->cells, [&](const Cell& cell) { return cell.offset.high() > kNoticeable; });
  });
}

std::string cells(const Bins& bins, std::size_t workers, bool exact) {
  const auto mean = [&](Spread Cell::* field) { return matrix(bins, workers, field, &Spread::mean); };
  const auto all = [&](Spread Cell::* field) {
    return spread(exact, [&](Statistic statistic) { return matrix(bins, workers, field, statistic); });
  };
  JsonObject object;
  object.raw("batch", all(&Cell::batch))
      .raw("compute", all(&Cell::compute))
      .raw("wait", mean(&Cell::wait))
      .raw("exchange", mean(&Cell::exchange));
  if (has_offsets(bins)) {
    object.raw("offset", mean(&Cell::offset));
  }
  return object.str();
}

std::string timeline(const RunView& view, std::int64_t first_record) {
  Bins bins = view.timeline().bins();
  std::erase_if(bins, [&](const Bin* bin) { return bin->ordinal < first_record; });
  const bool exact = std::ranges::all_of(bins, [](const Bin* bin) { return bin->records == 1; });
  const auto all = [&](Spread Bin::* field) {
    return spread(exact, [&](Statistic statistic) {
      return floats(bins, [&](const Bin& bin) { return ((bin.*field).*statistic)(); });
    });
  };
  return JsonObject()
      .integer("bins", bins.size())
      .integer("records", view.timeline().records())
      .flag("exact", exact)
      .raw("count", floats(bins, [](const Bin& bin) { return bin.records; }))
      .raw("first_step", doubles(bins, [](const Bin& bin) { return bin.first_step; }))
      .raw("last_step", doubles(bins, [](const Bin& bin) { return bin.last_step; }))
      .raw("start", doubles(bins, [](const Bin& bin) { return bin.start; }))
      .raw("end", doubles(bins, [](const Bin& bin) { return bin.end; }))
      .raw("samples", floats(bins, [](const Bin& bin) { return bin.samples; }))
      .raw("busy", floats(bins, [](const Bin& bin) { return bin.busy; }))
      .raw("seconds", all(&Bin::seconds))
      .raw("rate", all(&Bin::rate))
      .raw("balance", all(&Bin::balance))
      .raw("utilization", all(&Bin::utilization))
      .raw("loss", all(&Bin::loss))
      .raw("cells", cells(bins, view.workers().size(), exact))
      .str();
}

std::string to_json(const WorkerStep& step) {
  JsonObject object;
  const auto add = [&]<class T>(const WorkerColumn<T>& column) {
    object.number(column.attribute, static_cast<double>(column.of(step)));
  };
  std::apply([&](const auto&... column) { (add(column), ...); }, kWorkerColumns);
  return object.str();
}

std::string to_json(const WorkerTotals& worker) {
  return JsonObject()
      .text("id", std::to_string(worker.id))  // a number of 64 bits is too large for the page
      .text("name", worker.name)
      .text("kind", worker.kind)
      .flag("present", worker.present)
      .integer("steps", worker.steps)
      .number("samples", worker.samples)
      .number("compute", worker.compute_seconds)
      .number("wait", worker.wait_seconds)
      .number("inner_wait", worker.inner_wait_seconds)
      .number("exchange", worker.exchange_seconds)
      .number("work", worker.work)
      .number("padding", worker.padding)
      .raw("last", to_json(worker.last))
      .str();
}

std::string to_json(const Note& note) {
  JsonObject object;
  object.integer("step", note.step).number("seconds", note.seconds).text("what", note.what);
  if (!note.worker.empty()) {
    object.text("worker", note.worker);
  }
  return object.text("words", note.words).str();
}

template <class Entry>
std::string list(const FirstAndLast<Entry>& entries) {
  return JsonObject()
      .integer("total", entries.total())
      .raw("kept", json_array(entries.kept(), [](const Entry& entry) { return to_json(entry); }))
      .str();
}

std::string to_json(const std::vector<Curve::Point>& points) {
  return json_array(points, [](const Curve::Point& point) {
    return '[' + json_number(point.batch) + ',' + json_number(point.seconds) + ']';
  });
}

}  // namespace

Since now(const RunView& view) {
  return {
      .records = view.timeline().records(),
      .events = view.events().total(),
      .decisions = view.decisions().total(),
      .evaluations = view.evaluations().total()};
}

bool can_continue(const RunView& view, const Since& since) {
  if (since.records > view.timeline().records()) {
    return false;
  }
  return std::ranges::all_of(view.timeline().bins(), [&](const Bin* bin) {
    return bin->ordinal >= since.records || bin->ordinal + bin->records <= since.records;
  });
}

std::string to_page_json(const RunView& view, const std::string& name, const Since& since) {
  const RunHeader& header = view.header();
  JsonObject object;
  object.text("name", name)
      .text("program", header.program)
      .text("version", header.version)
      .text("policy", header.policy)
      .text("cluster", header.cluster)
      .flag("asynchronous", view.meter().staleness().total() > 0)
      .text("model", header.model)
      .text("dataset", header.dataset)
      .integer("global_batch", header.global_batch)
      .integer("total_steps", header.total_steps)
      .text("seed", std::to_string(header.seed))
      .raw("workers", json_array(view.workers(), [](const WorkerTotals& worker) { return to_json(worker); }))
      .integer("workers_left_out", view.workers_left_out())
      .raw("summary", to_json(view.summary(), header))
      .raw("timeline", timeline(view, since.records))
      .raw("curves", json_array(view.curves(), [](const auto& points) { return to_json(points); }));
  if (since.records == 0 || since.events < view.events().total()) {
    object.raw("events", list(view.events()));
  }
  if (since.records == 0 || since.decisions < view.decisions().total()) {
    object.raw("decisions", list(view.decisions()));
  }
  if (since.records == 0 || since.evaluations < view.evaluations().total()) {
    object.raw("evaluations", list(view.evaluations()));
  }
  return script_safe(object.str());
}

std::string script_safe(std::string json) {
  if (json.find('<') == std::string::npos) {
    return json;  // nearly always: it is long, and a copy would double the memory of a page
  }
  std::string text;
  text.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

std::string to_json(const Summary& summary, const RunHeader& header) {
  const Quantiles& step = summary.step_seconds;
  return JsonObject()
      .text("policy", header.policy)
      .number("samples_per_second", summary.samples_per_second)
      .raw(
          "step_seconds",
          JsonObject()
              .number("p50", step.p50)
              .number("p90", step.p90)
              .number("p99", step.p99)
              .number("mean", step.mean)
              .str())
      .number("total_seconds", summary.seconds)
      .number("between_seconds", summary.between_seconds)
      .integer("steps", summary.steps)
      .number("balance", summary.balance)
      .number("utilization", summary.utilization)
      .integer("adjustments", summary.adjustments)
      .number("over_equal_shares", summary.over_equal_shares)
      .number("best_over_now", summary.best_over_now)
      .number("loss", summary.loss)
      .number("test_accuracy", summary.accuracy)
      .str();
}

}  // namespace isochron::view
