// Every collective on groups of 1 to 5 ranks, with small whole numbers: results are exact in every type, whatever the
// order of additions.
#include <functional>
#include <set>
#include <vector>

#include "tests/ranks/group.h"
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "isochron/comm/mpi_backend.h"

namespace isochron {
namespace {

using c10d::ReduceOp;
using testing::FirstRanks;
using testing::world_rank;
using testing::world_size;
using Backend = c10::intrusive_ptr<c10d::Backend>;
using Tensors = std::vector<at::Tensor>;

// So small that a few thousand numbers make many pieces, the last of them short.
constexpr std::int64_t kChunkBytes = 1024;
constexpr std::int64_t kElements = 1001;

const std::vector<at::ScalarType> kTypes{
    at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong};

void on_groups_of_every_size(const std::function<void(const Backend&)>& test) {
  for (int size = 1; size <= world_size(); ++size) {
    const FirstRanks group(size);
    if (group.contain_me()) {
      SCOPED_TRACE("group of " + std::to_string(size));
      test(make_mpi_backend(group.comm(), {.timeout = std::chrono::seconds(20), .chunk_bytes = kChunkBytes}));
    }
  }
}

// Element i of rank r is i mod 5 + r.
at::Tensor input_of(int rank, at::ScalarType type, std::int64_t elements = kElements) {
  return (at::arange(elements, at::kLong).remainder(5) + rank).to(type);
}

at::Tensor allreduced(const Backend& backend, const at::Tensor& tensor, const ReduceOp& op) {
  Tensors tensors{tensor};
  backend->allreduce(tensors, {.reduceOp = op})->wait();
  return tensors[0];
}

// i mod 5 of rank 0: what all inputs have in common.
at::Tensor common(at::ScalarType type) {
  return input_of(0, type);
}

TEST(AllreduceTest, IsExactForEveryTypeAndOperation) {
  on_groups_of_every_size([](const Backend& backend) {
    const int size = backend->getSize();
    for (const auto type : kTypes) {
      SCOPED_TRACE(c10::toString(type));
      const at::Tensor mine = input_of(backend->getRank(), type);
      // sum_r (c + r) = n c + n (n - 1) / 2, at most 30: exact in 8 bits of mantissa too.
      const at::Tensor sum = common(type) * size + (size * (size - 1) / 2);
      EXPECT_TRUE(allreduced(backend, mine.clone(), ReduceOp::SUM).equal(sum));
      EXPECT_TRUE(allreduced(backend, mine.clone(), ReduceOp::MIN).equal(common(type)));
      EXPECT_TRUE(allreduced(backend, mine.clone(), ReduceOp::MAX).equal(common(type) + (size - 1)));
      const auto rounding = at::isFloatingType(type) ? std::nullopt : std::optional("trunc");
      EXPECT_TRUE(allreduced(backend, mine.clone(), ReduceOp::AVG).equal(at::div(sum, size, rounding)));
    }
  });
}

TEST(AllreduceTest, MultipliesAndCombinesBits) {
  on_groups_of_every_size([](const Backend& backend) {
    const int size = backend->getSize();
    const at::Tensor two = at::full({kElements}, 2, at::kFloat);
    EXPECT_TRUE(allreduced(backend, two, ReduceOp::PRODUCT).equal(at::full({kElements}, 1 << size, at::kFloat)));
    const at::Tensor own_bit = at::full({3}, 1 << backend->getRank(), at::kInt);
    EXPECT_TRUE(allreduced(backend, own_bit.clone(), ReduceOp::BOR).equal(at::full({3}, (1 << size) - 1, at::kInt)));
    EXPECT_TRUE(allreduced(backend, own_bit.clone(), ReduceOp::BXOR).equal(at::full({3}, (1 << size) - 1, at::kInt)));
    const int common_bit = size == 1 ? 1 : 0;
    EXPECT_TRUE(allreduced(backend, own_bit.clone(), ReduceOp::BAND).equal(at::full({3}, common_bit, at::kInt)));
    const at::Tensor first = at::full({2}, backend->getRank() == 0, at::kBool);
    EXPECT_TRUE(allreduced(backend, first.clone(), ReduceOp::SUM).equal(at::full({2}, true, at::kBool)));
  });
}

TEST(AllreduceTest, TakesTensorsThatAreNotContiguousAndEmptyOnes) {
  on_groups_of_every_size([](const Backend& backend) {
    const at::Tensor matrix = at::arange(12, at::kFloat).view({3, 4}).clone();
    allreduced(backend, matrix.t(), ReduceOp::SUM);
    EXPECT_TRUE(matrix.equal(at::arange(12, at::kFloat).view({3, 4}) * backend->getSize()));
    allreduced(backend, at::empty({0}), ReduceOp::SUM);
  });
}

TEST(AllreduceTest, KeepsManyInFlightApart) {
  on_groups_of_every_size([](const Backend& backend) {
    std::vector<Tensors> tensors;
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    for (int i = 0; i < 50; ++i) {
      tensors.push_back({at::full({i * 40}, i, at::kDouble)});
      works.push_back(backend->allreduce(tensors.back()));
    }
    for (int i = 49; i >= 0; --i) {
      const auto at = static_cast<std::size_t>(i);
      works[at]->wait();
      EXPECT_TRUE(tensors[at][0].equal(at::full({i * 40}, i * backend->getSize(), at::kDouble)));
    }
  });
}

TEST(AllreduceTest, FutureHoldsTheListOfTensors) {
  on_groups_of_every_size([](const Backend& backend) {
    Tensors tensors{at::ones({4})};
    const auto future = backend->allreduce(tensors)->getFuture();
    future->wait();
    ASSERT_TRUE(future->value().isTensorList());
    EXPECT_TRUE(future->value().toTensorVector().at(0).is_same(tensors[0]));
  });
}

TEST(AllreduceTest, TellsTheObserver) {
  std::vector<std::string> names;
  {
    const auto backend = make_mpi_backend(MPI_COMM_WORLD, {.observer = [&](const OperationTimes& times) {
                                            EXPECT_LE(times.submitted, times.finished);
                                            names.push_back(times.name);
                                          }});
    allreduced(backend, at::ones({7}), ReduceOp::SUM);
  }
  EXPECT_THAT(names, ::testing::ElementsAre("allreduce of 7 x Float"));
}

TEST(AllreduceTest, RefusesWhatItCannotReduce) {
  const auto backend = make_mpi_backend(MPI_COMM_WORLD);
  EXPECT_THROW(allreduced(backend, at::ones({2}), ReduceOp::BAND), std::invalid_argument);
  EXPECT_THROW(allreduced(backend, at::ones({2}, at::kBFloat16), ReduceOp::BXOR), std::invalid_argument);
  EXPECT_THROW(allreduced(backend, at::ones({2}, at::kComplexFloat), ReduceOp::SUM), std::invalid_argument);
  EXPECT_THROW(allreduced(backend, at::ones({2}).to_sparse(), ReduceOp::SUM), std::invalid_argument);
  // A refusal leaves the backend as it was.
  EXPECT_EQ(allreduced(backend, at::ones({1}), ReduceOp::SUM).item<float>(), static_cast<float>(world_size()));
}

TEST(MpiBackendOptionsTest, NamesTheFieldOutOfRange) {
  EXPECT_THROW(MpiBackendOptions{.timeout = std::chrono::milliseconds(0)}.validate(), std::invalid_argument);
  EXPECT_THROW(MpiBackendOptions{.chunk_bytes = 1023}.validate(), std::invalid_argument);
  EXPECT_THROW(MpiBackendOptions{.chunk_bytes = (std::int64_t{1} << 30) + 1}.validate(), std::invalid_argument);
}

TEST(BroadcastTest, BringsTheRootsTensor) {
  on_groups_of_every_size([](const Backend& backend) {
    for (int root = 0; root < backend->getSize(); ++root) {
      Tensors tensors{input_of(backend->getRank(), at::kDouble)};
      backend->broadcast(tensors, {.rootRank = root})->wait();
      EXPECT_TRUE(tensors[0].equal(input_of(root, at::kDouble)));
    }
  });
}

TEST(BroadcastTest, WritesThroughToParametersThatAreNotContiguous) {
  on_groups_of_every_size([](const Backend& backend) {
    const at::Tensor base = at::full({4, 3}, backend->getRank(), at::kFloat).requires_grad_();
    Tensors tensors{base.detach().t()};
    backend->broadcast(tensors, {.rootRank = backend->getSize() - 1})->wait();
    EXPECT_TRUE(base.equal(at::full({4, 3}, backend->getSize() - 1, at::kFloat)));
  });
}

TEST(AllgatherTest, CollectsEveryShareInOrder) {
  on_groups_of_every_size([](const Backend& backend) {
    Tensors inputs{input_of(backend->getRank(), at::kLong)};
    std::vector<Tensors> outputs(1);
    at::Tensor flat = at::empty({backend->getSize() * kElements}, at::kLong);
    for (int rank = 0; rank < backend->getSize(); ++rank) {
      outputs[0].push_back(at::empty({kElements}, at::kLong));
    }
    const auto list_work = backend->allgather(outputs, inputs);
    const auto flat_work = backend->_allgather_base(flat, inputs[0]);
    list_work->wait();
    flat_work->wait();
    for (int rank = 0; rank < backend->getSize(); ++rank) {
      EXPECT_TRUE(outputs[0][static_cast<std::size_t>(rank)].equal(input_of(rank, at::kLong)));
      EXPECT_TRUE(flat.slice(0, rank * kElements, (rank + 1) * kElements).equal(input_of(rank, at::kLong)));
    }
  });
}

TEST(AllgatherTest, WorksInPlaceAndRefusesWrongSizes) {
  on_groups_of_every_size([](const Backend& backend) {
    const int rank = backend->getRank();
    at::Tensor flat = at::full({backend->getSize()}, -1, at::kLong);
    at::Tensor mine = flat.slice(0, rank, rank + 1);
    mine.fill_(rank);
    backend->_allgather_base(flat, mine)->wait();
    EXPECT_TRUE(flat.equal(at::arange(backend->getSize(), at::kLong)));
    at::Tensor too_long = at::empty({backend->getSize() + 1}, at::kLong);
    EXPECT_THROW(backend->_allgather_base(too_long, mine), std::invalid_argument);
  });
}

TEST(AlltoallTest, GivesEveryRankTheSharesThatAreForIt) {
  on_groups_of_every_size([](const Backend& backend) {
    const int size = backend->getSize();
    const int rank = backend->getRank();
    std::vector<std::int64_t> equal;
    for (const auto type : {at::kByte, at::kFloat, at::kLong}) {
      // Rank r has r + 2 s + c for rank s, in several chunks.
      Tensors shares;
      Tensors expected;
      for (int other = 0; other < size; ++other) {
        shares.push_back(input_of(rank, type) + 2 * other);
        expected.push_back(input_of(other, type) + 2 * rank);
      }
      at::Tensor input = at::cat(shares);
      at::Tensor output = at::empty_like(input);
      backend->alltoall_base(output, input, equal, equal)->wait();
      EXPECT_TRUE(output.equal(at::cat(expected))) << type;
      backend->alltoall_base(input, input, equal, equal)->wait();
      EXPECT_TRUE(input.equal(at::cat(expected))) << type;
    }
  });
}

TEST(AlltoallTest, RefusesUnequalShares) {
  on_groups_of_every_size([](const Backend& backend) {
    const int size = backend->getSize();
    at::Tensor tensor = at::zeros({size});
    at::Tensor longer = at::zeros({size + 1});
    std::vector<std::int64_t> equal;
    std::vector<std::int64_t> splits(static_cast<std::size_t>(size), 1);
    EXPECT_THROW(backend->alltoall_base(tensor, tensor, splits, equal), std::invalid_argument);
    EXPECT_THROW(backend->alltoall_base(tensor, longer, equal, equal), std::invalid_argument);
    if (size > 1) {
      EXPECT_THROW(backend->alltoall_base(longer, longer, equal, equal), std::invalid_argument);
    }
  });
}

TEST(ReduceScatterTest, GivesEveryRankItsShareOfTheSum) {
  on_groups_of_every_size([](const Backend& backend) {
    const int size = backend->getSize();
    const int rank = backend->getRank();
    for (const auto type : {at::kFloat, at::kBFloat16, at::kInt}) {
      // Rank r offers c + r + s to rank s; so rank s receives n c + n (n - 1) / 2 + n s.
      std::vector<Tensors> inputs(1);
      for (int share = 0; share < size; ++share) {
        inputs[0].push_back(input_of(rank, type) + share);
      }
      const at::Tensor expected = common(type) * size + (size * (size - 1) / 2 + size * rank);
      Tensors outputs{at::empty({kElements}, type)};
      backend->reduce_scatter(outputs, inputs)->wait();
      EXPECT_TRUE(outputs[0].equal(expected));
      at::Tensor flat = at::cat(inputs[0]);
      backend->_reduce_scatter_base(outputs[0], flat, {.reduceOp = ReduceOp::MAX})->wait();
      EXPECT_TRUE(outputs[0].equal(common(type) + (size - 1 + rank)));
    }
  });
}

TEST(BarrierTest, HoldsUntilTheLastRankArrives) {
  const auto backend = make_mpi_backend(MPI_COMM_WORLD);
  Tensors token{at::ones({1})};
  if (world_rank() == 0) {
    backend->recv(token, 1, 0)->wait();
    backend->barrier()->wait();
  } else {
    const auto barrier = backend->barrier();
    if (world_rank() == 1) {
      // Rank 0 enters only after it has this message, so the barrier cannot be over.
      EXPECT_FALSE(barrier->isCompleted());
      backend->send(token, 0, 0)->wait();
    }
    barrier->wait();
  }
}

TEST(SendTest, MatchesByTagNotByOrder) {
  const auto backend = make_mpi_backend(MPI_COMM_WORLD);
  const int next = (world_rank() + 1) % world_size();
  const int previous = (world_rank() + world_size() - 1) % world_size();
  Tensors first{input_of(world_rank(), at::kFloat)};
  Tensors second{input_of(world_rank() + 100, at::kFloat)};
  Tensors got_first{at::empty({kElements})};
  Tensors got_second{at::empty({kElements})};
  const auto a = backend->send(first, next, 1);
  const auto b = backend->send(second, next, 2);
  backend->recv(got_second, previous, 2)->wait();
  backend->recv(got_first, previous, 1)->wait();
  a->wait();
  b->wait();
  EXPECT_TRUE(got_first[0].equal(input_of(previous, at::kFloat)));
  EXPECT_TRUE(got_second[0].equal(input_of(previous + 100, at::kFloat)));
}

TEST(SendTest, ReceivesFromAnySourceAndSaysFromWhom) {
  const auto backend = make_mpi_backend(MPI_COMM_WORLD);
  if (world_rank() != 0) {
    Tensors mine{input_of(world_rank(), at::kFloat)};
    backend->send(mine, 0, 3)->wait();
    return;
  }
  std::set<int> sources;
  for (int i = 1; i < world_size(); ++i) {
    Tensors got{at::empty({kElements})};
    const auto work = backend->recvAnysource(got, 3);
    work->wait();
    EXPECT_TRUE(got[0].equal(input_of(work->sourceRank(), at::kFloat)));
    sources.insert(work->sourceRank());
  }
  EXPECT_EQ(sources.size(), static_cast<std::size_t>(world_size() - 1));
}

}  // namespace
}  // namespace isochron
