// A process that is to join, and whom the job forgets: MPI does not tell it, so that it ends by itself in time.
#include "isochron/comm/newcomer.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <mpi.h>
#include <unistd.h>

#include "isochron/comm/mpi_session.h"
#include "isochron/comm/ulfm.h"

namespace isochron {
namespace {

using namespace std::chrono_literals;

bool is_newcomer() {
  MPI_Comm parent = MPI_COMM_NULL;
  MPI_Comm_get_parent(&parent);
  return parent != MPI_COMM_NULL;
}

// This program again, as a process that joins, for the test that runs. MPI hears of its end as of a death.
class Started {
 public:
  Started() {
    const auto* const test = testing::UnitTest::GetInstance()->current_test_info();
    filter_ = std::string("--gtest_filter=") + test->test_suite_name() + "." + test->name();
    std::string folder = (std::filesystem::temp_directory_path() / "isochron-newcomer-XXXXXX").string();
    folder_ = mkdtemp(folder.data());
    program_ = std::filesystem::read_symlink("/proc/self/exe").string();
    std::string status = (folder_ / "status").string();
    std::string option = "-c";
    std::string script = R"(unset ISOCHRON_AT_TEST; "$0" "$1"; echo $? > "$2.part"; mv "$2.part" "$2")";
    const std::array<char*, 6> words{
        option.data(), script.data(), program_.data(), filter_.data(), status.data(), nullptr};
    MpiSession::end_in_time();  // whoever is gone is waited for at the end otherwise
    MPI_Comm_spawn(
        "/bin/sh", const_cast<char**>(words.data()), 1, MPI_INFO_NULL, 0, MPI_COMM_SELF, &with_, MPI_ERRCODES_IGNORE);
    MPI_Comm_set_errhandler(with_, MPI_ERRORS_RETURN);
  }
  Started(const Started&) = delete;
  Started& operator=(const Started&) = delete;
  ~Started() { std::filesystem::remove_all(folder_); }

  [[nodiscard]] MPI_Comm with() const { return with_; }

  // Of its end, which is waited for.
  [[nodiscard]] int status() const {
    const auto deadline = std::chrono::steady_clock::now() + 200s;
    while (std::chrono::steady_clock::now() < deadline) {
      int status = -1;
      if (std::ifstream(folder_ / "status") >> status) {
        return status;
      }
      int found = 0;  // nothing is, but MPI gets on
      MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
      std::this_thread::sleep_for(20ms);
    }
    return -1;
  }

 private:
  std::string filter_;
  std::filesystem::path folder_;
  std::string program_;
  MPI_Comm with_ = MPI_COMM_NULL;
};

TEST(ForgottenNewcomerTest, EndsThirtySecondsAfterItsStartIfNobodyConnectsIt) {
  if (is_newcomer()) {
    (void)Admission::take();
    return;
  }
  if (!has_ulfm()) {
    GTEST_SKIP() << "this MPI ends the whole job when a rank dies";
  }
  const Started newcomer;
  EXPECT_EQ(newcomer.status(), EXIT_FAILURE);
}

TEST(UnadmittedNewcomerTest, EndsAfterTheTimeOutOfTheJob) {
  if (is_newcomer()) {
    (void)Admission::take()->enter("me", 500ms);
    return;
  }
  if (!has_ulfm()) {
    GTEST_SKIP() << "this MPI ends the whole job when a rank dies";
  }
  const Started newcomer;
  MPI_Comm bridge = MPI_COMM_NULL;
  ASSERT_EQ(MPI_Intercomm_merge(newcomer.with(), 0, &bridge), MPI_SUCCESS);
  MPI_Comm_set_errhandler(bridge, MPI_ERRORS_RETURN);
  std::int64_t size = 0;
  MPI_Recv(&size, 1, MPI_INT64_T, 1, 1, bridge, MPI_STATUS_IGNORE);
  std::string said(static_cast<std::size_t>(size), '\0');
  MPI_Recv(said.data(), static_cast<int>(size), MPI_BYTE, 1, 1, bridge, MPI_STATUS_IGNORE);
  EXPECT_EQ(said, "me");
  const std::string come = "come";  // and nobody comes
  size = static_cast<std::int64_t>(come.size());
  MPI_Send(&size, 1, MPI_INT64_T, 1, 2, bridge);
  MPI_Send(come.data(), static_cast<int>(size), MPI_BYTE, 1, 2, bridge);
  EXPECT_EQ(newcomer.status(), EXIT_FAILURE);
}

}  // namespace
}  // namespace isochron
