// Every rank runs the same tests; rank 0 reports as GoogleTest does, the others only what fails.
#include <cstdio>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>
#include <mpi.h>

#include "isochron/comm/mpi_session.h"

namespace {

class FailuresOfRank : public testing::EmptyTestEventListener {
 public:
  explicit FailuresOfRank(int rank) : rank_(rank) {}

  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.failed()) {
      std::fprintf(
          stderr,
          "rank %d: %s:%d: %s\n",
          rank_,
          result.file_name() != nullptr ? result.file_name() : "?",
          result.line_number(),
          result.message());
    }
  }

 private:
  int rank_;
};

// GoogleTest makes the file at the start and removes it at the end; mpirun.sh says where and looks whether one is left.
void tell_of_death(int rank) {
  if (const char* const folder = std::getenv("ISOCHRON_AT_TEST")) {
    setenv("TEST_PREMATURE_EXIT_FILE", (std::string(folder) + "/" + std::to_string(rank)).c_str(), /*overwrite=*/1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (GTEST_FLAG_GET(list_tests)) {
    return RUN_ALL_TESTS();
  }
  const isochron::MpiSession session;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  tell_of_death(rank);
  if (rank != 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    delete listeners.Release(listeners.default_xml_generator());
    listeners.Append(new FailuresOfRank(rank));
  }
  return RUN_ALL_TESTS();
}
