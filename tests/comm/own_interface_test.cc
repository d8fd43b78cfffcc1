#include "isochron/comm/own_interface.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace isochron {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

// Where a socket ends up that asks for this address.
std::string bound_to(const std::string& wanted, int only_v6 = 1) {
  const int family = wanted.find(':') == std::string::npos ? AF_INET : AF_INET6;
  sockaddr_in6 v6{.sin6_family = AF_INET6};
  sockaddr_in v4{.sin_family = AF_INET};
  inet_pton(AF_INET6, wanted.c_str(), &v6.sin6_addr);
  inet_pton(AF_INET, wanted.c_str(), &v4.sin_addr);
  const auto* const address =
      family == AF_INET ? reinterpret_cast<const sockaddr*>(&v4) : reinterpret_cast<const sockaddr*>(&v6);
  const int port = socket(family, SOCK_STREAM, 0);
  if (family == AF_INET6) {
    setsockopt(port, IPPROTO_IPV6, IPV6_V6ONLY, &only_v6, sizeof only_v6);
  }
  std::string found = "none";
  sockaddr_in6 name{};
  socklen_t size = sizeof name;
  if (bind(port, address, family == AF_INET ? sizeof v4 : sizeof v6) == 0 &&
      getsockname(port, reinterpret_cast<sockaddr*>(&name), &size) == 0) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    const void* const bytes = family == AF_INET
                                  ? static_cast<const void*>(&reinterpret_cast<sockaddr_in*>(&name)->sin_addr)
                                  : static_cast<const void*>(&name.sin6_addr);
    found = inet_ntop(family, bytes, text.data(), text.size());
  }
  close(port);
  return found;
}

TEST(OwnInterfaceTest, TakesTheSocketsThatAskForAllInterfaces) {
  EXPECT_EQ(bound_to("0.0.0.0"), "0.0.0.0");
  {
    const OwnInterface own("lo");
    EXPECT_EQ(bound_to("0.0.0.0"), "127.0.0.1");
    EXPECT_EQ(bound_to("127.0.0.2"), "127.0.0.2") << "who names an address gets it";
    if (const std::string v6 = bound_to("::"); v6 != "none") {
      EXPECT_EQ(v6, "::1");
      EXPECT_EQ(bound_to("::", 0), "::ffff:127.0.0.1") << "one for both kinds";
    }
  }
  EXPECT_EQ(bound_to("0.0.0.0"), "0.0.0.0");
  const OwnInterface all("");
  EXPECT_EQ(bound_to("0.0.0.0"), "0.0.0.0");
}

TEST(OwnInterfaceTest, RefusesWhatIsNoInterface) {
  try {
    const OwnInterface own("moon0");
    FAIL() << "there is no such interface";
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "ISOCHRON_INTERFACE is 'moon0'; permitted: a network interface");
  }
}

// What `isochron launch` preloads into mpirun: who is only loaded has no error to end with, and must not open to all.
TEST(OwnInterfaceTest, ANameThatIsNoneOpensNoPortToOthersWherePreloaded) {
  const auto bound = [](const std::string& interface) {
    const std::string program =
        "import socket; s = socket.socket(); s.bind((chr(48), 0)); print(s.getsockname()[0], flush=True)";
    const std::string command = "LD_PRELOAD=" ISOCHRON_BIN "/isochron-interface.so ISOCHRON_INTERFACE=" + interface +
                                " python3 -c '" + program + "' 2>&1";
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
    std::string said;
    std::array<char, 256> bytes{};
    while (fgets(bytes.data(), bytes.size(), pipe.get()) != nullptr) {
      said += bytes.data();
    }
    return said;
  };
  EXPECT_EQ(bound(""), "0.0.0.0\n");
  EXPECT_EQ(bound("lo"), "127.0.0.1\n");
  const std::string unknown = bound("moon0");
  EXPECT_THAT(unknown, EndsWith("127.0.0.1\n"));
  EXPECT_THAT(unknown, HasSubstr("warning: ISOCHRON_INTERFACE is 'moon0', which is no network interface"));
}

TEST(OwnInterfaceTest, IsWhatIsGivenElseLoopbackOnOneHost) {
  const std::array names{
      "ISOCHRON_INTERFACE",
      "OMPI_MCA_btl_tcp_if_include",
      "OMPI_COMM_WORLD_SIZE",
      "OMPI_COMM_WORLD_LOCAL_SIZE",
      "SLURM_STEP_NUM_NODES"};
  for (const char* const name : names) {
    unsetenv(name);
  }
  EXPECT_EQ(interface_for_mpi(), "") << "nobody knows where the others are";
  setenv("SLURM_STEP_NUM_NODES", "1", 1);
  EXPECT_EQ(interface_for_mpi(), "lo");
  setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
  setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1);
  EXPECT_EQ(interface_for_mpi(), "") << "of two hosts";
  setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "4", 1);
  EXPECT_EQ(interface_for_mpi(), "lo");
  setenv("OMPI_MCA_btl_tcp_if_include", "eth0,eth1", 1);
  EXPECT_EQ(interface_for_mpi(), "") << "not one";
  setenv("OMPI_MCA_btl_tcp_if_include", "eth1", 1);
  EXPECT_EQ(interface_for_mpi(), "eth1");
  setenv("ISOCHRON_INTERFACE", "eth2", 1);
  EXPECT_EQ(interface_for_mpi(), "eth2");
  for (const char* const name : names) {
    unsetenv(name);
  }
}

}  // namespace
}  // namespace isochron
