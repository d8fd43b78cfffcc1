#include "isochron/comm/own_interface.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace isochron {
namespace {

constexpr const char* kVariable = "ISOCHRON_INTERFACE";
constexpr const char* kLoopback = "lo";

struct Addresses {
  in_addr v4{htonl(INADDR_LOOPBACK)};
  in6_addr v6 = IN6ADDR_LOOPBACK_INIT;
};

Addresses addresses_of(const std::string& name) {
  Addresses found;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    return found;
  }
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || name != one->ifa_name) {
      continue;
    }
    if (one->ifa_addr->sa_family == AF_INET) {
      found.v4 = reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr;
    } else if (one->ifa_addr->sa_family == AF_INET6) {
      const in6_addr& address = reinterpret_cast<const sockaddr_in6*>(one->ifa_addr)->sin6_addr;
      found.v6 = IN6_IS_ADDR_LINKLOCAL(&address) ? found.v6 : address;
    }
  }
  freeifaddrs(list);
  return found;
}

Addresses chosen;
std::atomic<bool> restricted = false;

void restrict_to(const std::string& name) {
  if (if_nametoindex(name.c_str()) == 0) {
    throw std::invalid_argument(std::string(kVariable) + " is '" + name + "'; permitted: a network interface");
  }
  chosen = addresses_of(name);
  restricted = true;
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

#ifdef ISOCHRON_PRELOADED
// Nobody could take an error of a program that is only loaded into: a name that is none opens no port to others.
const bool kRestrictedFromTheStart [[maybe_unused]] = [] {
  if (const std::string name = variable(kVariable); if_nametoindex(name.c_str()) != 0) {
    restrict_to(name);
  } else if (!name.empty()) {
    (void)std::fprintf(
        stderr,
        "isochron: warning: %s is '%s', which is no network interface; ports are opened on loopback alone\n",
        kVariable,
        name.c_str());
    restrict_to(kLoopback);
  }
  return true;
}();
#endif

}  // namespace

std::string interface_for_mpi() {
  if (const std::string given = variable(kVariable); !given.empty()) {
    return given;
  }
  if (const std::string told = variable("OMPI_MCA_btl_tcp_if_include"); !told.empty()) {
    return told.find_first_of(",/") == std::string::npos ? told : "";
  }
  const std::string all = variable("OMPI_COMM_WORLD_SIZE");
  const bool one_host =
      all.empty() ? variable("SLURM_STEP_NUM_NODES") == "1" : all == variable("OMPI_COMM_WORLD_LOCAL_SIZE");
  return one_host ? kLoopback : "";
}

OwnInterface::OwnInterface(const std::string& name) {
  if (!name.empty()) {
    restrict_to(name);
  }
}

OwnInterface::~OwnInterface() {
  restricted = false;
}

}  // namespace isochron

namespace isochron {
namespace {

// A socket that takes connections of both kinds, as gRPC's do, gets the address that others know: that of IPv4.
in6_addr v6_address(int socket) {
  int only_v6 = 0;
  socklen_t size = sizeof only_v6;
  if (getsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &only_v6, &size) != 0 || only_v6 != 0) {
    return chosen.v6;
  }
  in6_addr mapped{};
  mapped.s6_addr[10] = mapped.s6_addr[11] = 0xff;
  std::memcpy(&mapped.s6_addr[12], &chosen.v4, sizeof chosen.v4);
  return mapped;
}

}  // namespace
}  // namespace isochron

// What libraries of this process call instead of the C library's.
extern "C" __attribute__((visibility("default"))) int bind(
    int socket, const sockaddr* address, socklen_t length) noexcept {
  sockaddr_storage changed{};
  if (isochron::restricted && address != nullptr && length <= sizeof changed) {
    std::memcpy(&changed, address, length);
    auto& v4 = reinterpret_cast<sockaddr_in&>(changed);
    auto& v6 = reinterpret_cast<sockaddr_in6&>(changed);
    if (changed.ss_family == AF_INET && v4.sin_addr.s_addr == htonl(INADDR_ANY)) {
      v4.sin_addr = isochron::chosen.v4;
    } else if (changed.ss_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr)) {
      v6.sin6_addr = isochron::v6_address(socket);
    }
    address = reinterpret_cast<const sockaddr*>(&changed);
  }
  return static_cast<int>(syscall(SYS_bind, socket, address, length));
}
