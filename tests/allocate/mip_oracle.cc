#include "mip_oracle.h"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <vector>

#include <glpk.h>

namespace isochron::reference {
namespace {

// minimise T over units n_k, busy flags y_k and remainder flags z_k (columns 1 + 3k .. 3 + 3k; T is the first), where
// b_k = g_k n_k + r z_k and a worker with b_k = 0 skips its fixed costs:
//   T >= offset_k + floor_k y_k + floor_slope_k b_k
//   T >= offset_k + fixed_k y_k + slope_k b_k
//   b_k <= min(max_k, B) y_k,   g_k n_k >= min_k,   sum b_k = B,   sum z_k = 1 if r > 0.
class Program {
 public:
  Program(std::span<const Slot> slots, std::int64_t global_batch)
      : slots_(slots),
        global_batch_(static_cast<double>(global_batch)),
        smallest_(std::ranges::min(slots, {}, &Slot::granularity).granularity),
        remainder_(static_cast<double>(global_batch % smallest_)),
        problem_(glp_create_prob(), glp_delete_prob) {
    glp_set_obj_dir(problem_.get(), GLP_MIN);
    glp_add_cols(problem_.get(), 1 + 3 * static_cast<int>(slots.size()));
    glp_set_col_bnds(problem_.get(), kLevel, GLP_LO, 0.0, 0.0);
    glp_set_obj_coef(problem_.get(), kLevel, 1.0);
    for (std::size_t k = 0; k < slots.size(); ++k) {
      add_worker(k);
    }
    add_sums();
  }

  std::optional<double> solve() {
    // Not GLPK's presolver, which starts from the relaxation by itself: it moves the optimum by up to 1e-3.
    glp_smcp relaxation;
    glp_init_smcp(&relaxation);
    relaxation.msg_lev = GLP_MSG_OFF;
    glp_simplex(problem_.get(), &relaxation);
    glp_iocp options;
    glp_init_iocp(&options);
    options.msg_lev = GLP_MSG_OFF;
    options.cb_func = stop_after_many_nodes;
    const int failure = glp_intopt(problem_.get(), &options);
    if (failure == GLP_ESTOP) {
      return std::nullopt;
    }
    if (failure != 0 || glp_mip_status(problem_.get()) != GLP_OPT) {
      throw std::runtime_error("GLPK did not solve the program");
    }
    return glp_mip_obj_val(problem_.get());
  }

 private:
  struct Term {
    int column;
    double factor;
  };
  static constexpr int kLevel = 1;
  static constexpr int kMaxNodes = 1000;

  static void stop_after_many_nodes(glp_tree* tree, void* /*unused*/) {
    int created = 0;
    glp_ios_tree_size(tree, nullptr, nullptr, &created);
    if (created > kMaxNodes) {
      glp_ios_terminate(tree);
    }
  }

  static int units(std::size_t k) { return 2 + 3 * static_cast<int>(k); }
  static int busy(std::size_t k) { return units(k) + 1; }
  static int extra(std::size_t k) { return units(k) + 2; }

  /// Adds sum of terms >= bound (GLP_LO), <= bound (GLP_UP) or = bound (GLP_FX).
  void add_row(int type, double bound, const std::vector<Term>& terms) {
    std::vector<int> columns{0};  // GLPK counts from 1
    std::vector<double> factors{0.0};
    for (const Term& term : terms) {
      columns.push_back(term.column);
      factors.push_back(term.factor);
    }
    const int row = glp_add_rows(problem_.get(), 1);
    glp_set_row_bnds(problem_.get(), row, type, bound, bound);
    glp_set_mat_row(problem_.get(), row, static_cast<int>(terms.size()), columns.data(), factors.data());
  }

  void add_worker(std::size_t k) {
    const Slot& slot = slots_[k];
    const Curve::BentLine& line = slot.curve.bent_line();
    const auto g = static_cast<double>(slot.granularity);
    glp_set_col_kind(problem_.get(), units(k), GLP_IV);
    glp_set_col_bnds(problem_.get(), units(k), GLP_LO, 0.0, 0.0);
    glp_set_col_kind(problem_.get(), busy(k), GLP_BV);
    glp_set_col_kind(problem_.get(), extra(k), GLP_BV);
    if (remainder_ == 0.0 || slot.granularity != smallest_) {
      glp_set_col_bnds(problem_.get(), extra(k), GLP_FX, 0.0, 0.0);
    }
    const auto takes = [&](double fixed, double slope) {
      add_row(
          GLP_LO,
          slot.offset_seconds,
          {{kLevel, 1.0}, {busy(k), -fixed}, {units(k), -slope * g}, {extra(k), -slope * remainder_}});
    };
    takes(line.floor, line.floor_slope);
    takes(line.fixed, line.slope);
    const double most = std::min(static_cast<double>(slot.max_batch), global_batch_);
    add_row(GLP_UP, 0.0, {{units(k), g}, {extra(k), remainder_}, {busy(k), -most}});
    add_row(GLP_LO, static_cast<double>(slot.min_batch), {{units(k), g}});
  }

  void add_sums() {
    std::vector<Term> batches;
    std::vector<Term> extras;
    for (std::size_t k = 0; k < slots_.size(); ++k) {
      batches.push_back({units(k), static_cast<double>(slots_[k].granularity)});
      batches.push_back({extra(k), remainder_});
      extras.push_back({extra(k), 1.0});
    }
    add_row(GLP_FX, global_batch_, batches);
    if (remainder_ > 0.0) {
      add_row(GLP_FX, 1.0, extras);
    }
  }

  std::span<const Slot> slots_;
  double global_batch_;
  std::int64_t smallest_;
  double remainder_;
  std::unique_ptr<glp_prob, decltype(&glp_delete_prob)> problem_;
};

}  // namespace

std::optional<double> mip_seconds(std::span<const Slot> slots, std::int64_t global_batch) {
  return Program(slots, global_batch).solve();
}

}  // namespace isochron::reference
