#include "isochron/engine/membership.h"

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "isochron/comm/mpi_call.h"
#include "isochron/comm/watchdog.h"
#include "isochron/engine/exchange.h"

namespace isochron {
namespace {

std::vector<ProgressReport> gather_progress(const Group& group, const ProgressReport& mine) {
  std::vector<ProgressReport> reports;
  for (const std::string& text : all_gather(group, mine.encode())) {
    reports.push_back(ProgressReport::decode(text));
  }
  return reports;
}

// MPI waits without an end for a worker that does not make the job, too; at the first one of a process the launcher
// looks after that.
std::unique_ptr<World> make_world(MPI_Comm members, const WorldOptions& options) {
  const WatchedThread watched("making a job together with the other workers", options.longest_wait());
  MPI_Comm copy = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(members, &copy), "MPI_Comm_dup");
  return std::make_unique<World>(copy, options);
}

std::string objection_to(const std::string& introduction, const Introduction& own) {
  try {
    return objection(Introduction::decode(introduction), own);
  } catch (const std::invalid_argument& error) {
    return std::string("its introduction cannot be read: ") + error.what();
  }
}

}  // namespace

std::vector<Peer> suspects_of(const PeerError& error) {
  return dynamic_cast<const TimeoutError*>(&error) != nullptr ? error.peers() : std::vector<Peer>{};
}

Membership::Membership(MPI_Comm members, WorldOptions options)
    : options_(std::move(options)), world_(make_world(members, options_)) {
}
Membership::~Membership() = default;

Settlement Membership::recover(Member& member, std::vector<Peer> suspects) {
  while (true) {
    world_->rebuild(std::exchange(suspects, {}));
    if (auto settlement = come_together(member)) {
      return *std::move(settlement);
    }
  }
}

std::optional<Settlement> Membership::come_together(Member& member) {
  std::optional<Settlement> settlement;
  try {
    settlement = settle(gather_progress(group(), member.progress()));
    member.catch_up(*settlement);
  } catch (const PeerError&) {
    settlement.reset();
  }
  return world_->agree(settlement.has_value()) ? settlement : std::nullopt;
}

void Membership::invite(
    const std::vector<std::string>& command,
    const std::string& host,
    const std::function<bool()>& gone,
    Introduction own,
    Warn warn) {
  newcomer_ = std::make_unique<Newcomer>(command, host, gone);
  own_ = std::move(own);
  warn_ = std::move(warn);
}

bool Membership::newcomer_is_ready() {
  if (!newcomer_ || newcomer_->status() == Newcomer::Status::kComing) {
    return false;
  }
  std::string trouble = newcomer_->failure();
  if (newcomer_->status() == Newcomer::Status::kReady) {
    trouble = objection_to(newcomer_->introduction(), own_);
    if (trouble.empty()) {
      return true;
    }
    newcomer_->refuse(trouble);
  }
  newcomer_.reset();
  warn_("a worker did not join: " + trouble);
  return false;
}

Settlement Membership::admit(Member& member) {
  const std::unique_ptr<Newcomer> newcomer = std::move(newcomer_);
  world_->admit(newcomer.get());
  if (auto settlement = come_together(member)) {
    return *std::move(settlement);
  }
  return recover(member, {});
}

std::optional<Settlement> Membership::join(Admission& admission, Member& member, const Introduction& introduction) {
  const MPI_Comm everybody = admission.enter(introduction.encode(), options_.timeout);
  if (everybody == MPI_COMM_NULL) {
    return std::nullopt;
  }
  {
    const WatchedThread watched("joining a job", options_.longest_wait());
    world_ = std::make_unique<World>(everybody, options_);
  }
  if (auto settlement = come_together(member)) {
    return settlement;
  }
  return recover(member, {});
}

}  // namespace isochron
