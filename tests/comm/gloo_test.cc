// The same collectives on the same inputs as gloo_reference.py: the results are Gloo's. Whole numbers, minima and
// maxima agree exactly; floating-point sums up to the order of additions.
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "tests/ranks/group.h"
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/jit/serialization/pickle.h>

#include "isochron/comm/mpi_backend.h"

namespace isochron {
namespace {

using c10d::ReduceOp;
using testing::world_rank;
using testing::world_size;
using Backend = c10::intrusive_ptr<c10d::Backend>;
using Tensors = std::vector<at::Tensor>;

struct Case {
  std::string collective;
  std::string operation;
  at::Tensor input;
  at::Tensor output;
};

// This rank's part of the file, by the name of the case.
std::map<std::string, Case> read_cases() {
  std::ifstream file(ISOCHRON_TEST_DATA "/gloo.pt", std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  std::map<std::string, Case> cases;
  for (const auto& entry : torch::jit::pickle_load(bytes).toGenericDict()) {
    const std::string key = entry.key().toStringRef();
    const auto slash = key.find('/');
    if (key.substr(key.rfind('/') + 1) != std::to_string(world_rank())) {
      continue;
    }
    const std::string name = key.substr(0, slash);
    const auto dash = name.find('-');
    Case& found = cases[name];
    found.collective = name.substr(0, dash);
    found.operation = name.substr(dash + 1, name.rfind('-') - dash - 1);
    (key.substr(slash, 4) == "/in/" ? found.input : found.output) = entry.value().toTensor();
  }
  return cases;
}

ReduceOp reduction(const std::string& name) {
  static const std::map<std::string, ReduceOp::RedOpType> operations{
      {"sum", ReduceOp::SUM}, {"product", ReduceOp::PRODUCT}, {"min", ReduceOp::MIN}, {"max", ReduceOp::MAX}};
  return operations.at(name);
}

at::Tensor run(const Backend& backend, const Case& item) {
  at::Tensor result = item.input.clone();
  Tensors tensors{result};
  if (item.collective == "allreduce") {
    backend->allreduce(tensors, {.reduceOp = reduction(item.operation)})->wait();
  } else if (item.collective == "broadcast") {
    backend->broadcast(tensors, {.rootRank = 1})->wait();
  } else if (item.collective == "allgather") {
    at::Tensor input = item.input.clone();
    result = at::empty({world_size() * input.numel()}, input.options());
    backend->_allgather_base(result, input)->wait();
  } else {
    at::Tensor input = item.input.clone();
    result = at::empty({input.numel() / world_size()}, input.options());
    backend->_reduce_scatter_base(result, input, {.reduceOp = reduction(item.operation)})->wait();
  }
  return result;
}

// Two roundings to the type's precision per addition or product, relative to numbers of a few units.
double tolerance(at::ScalarType type) {
  const std::map<at::ScalarType, double> epsilon{
      {at::kDouble, 0x1p-52}, {at::kFloat, 0x1p-23}, {at::kHalf, 0x1p-10}, {at::kBFloat16, 0x1p-7}};
  const auto found = epsilon.find(type);
  return found == epsilon.end() ? 0 : 8 * found->second;
}

TEST(GlooTest, AgreesOnEveryCase) {
  const auto backend = make_mpi_backend(MPI_COMM_WORLD, {.chunk_bytes = 1024});
  const auto cases = read_cases();
  // 4 reductions in 8 types, and 3 further collectives in 2 types.
  ASSERT_EQ(cases.size(), 38U);
  for (const auto& [name, item] : cases) {
    SCOPED_TRACE(name);
    const at::Tensor result = run(backend, item);
    ASSERT_EQ(result.scalar_type(), item.output.scalar_type());
    if (item.operation == "sum" || item.operation == "product") {
      const double allowed = tolerance(result.scalar_type());
      EXPECT_TRUE(at::allclose(result.to(at::kDouble), item.output.to(at::kDouble), allowed, allowed));
    } else {
      EXPECT_TRUE(result.equal(item.output));
    }
  }
}

}  // namespace
}  // namespace isochron
