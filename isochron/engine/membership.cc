#include "isochron/engine/membership.h"

#include <algorithm>
#include <utility>

#include "isochron/comm/mpi_call.h"
#include "isochron/engine/job_state.h"

namespace isochron {
namespace {

std::vector<Standing> gather_standings(const Group& group, Standing mine) {
  std::vector<Standing> standings;
  for (const std::string& text : all_gather(group, save_state(mine).serialize())) {
    restore_state(standings.emplace_back(), State::parse(text));
  }
  return standings;
}

MPI_Comm duplicate(MPI_Comm members) {
  MPI_Comm copy = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(members, &copy), "MPI_Comm_dup");
  return copy;
}

}  // namespace

std::vector<Peer> suspects_of(const PeerError& error) {
  return dynamic_cast<const TimeoutError*>(&error) != nullptr ? error.peers() : std::vector<Peer>{};
}

Membership::Membership(MPI_Comm members, WorldOptions options)
    : options_(std::move(options)), world_(std::make_unique<World>(duplicate(members), options_)) {
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
    const Standing mine = member.standing();
    settlement = settle(gather_standings(group(), mine));
    if (settlement->unfinished && mine.progress % 2 == 1) {
      member.finish_unreported();
    }
    bring_up(member, *settlement);
  } catch (const PeerError&) {
    settlement.reset();
  }
  return world_->agree(settlement.has_value()) ? settlement : std::nullopt;
}

void Membership::bring_up(Member& member, const Settlement& settlement) {
  const auto& behind = settlement.behind;
  if (rank() == settlement.leader && !behind.empty()) {
    const Checkpoint state = member.state();
    for (const int rank : behind) {
      send_checkpoint(group(), state, rank);
    }
  } else if (std::ranges::find(behind, rank()) != behind.end()) {
    member.take_over(receive_checkpoint(group(), settlement.leader));
  }
}

void Membership::invite(
    const std::vector<std::string>& words, const std::string& host, const std::function<bool()>& gone) {
  newcomer_ = std::make_unique<Newcomer>(words, host, gone);
}

bool Membership::newcomer_is_ready(const Objection& objection, const Warn& warn) {
  if (!newcomer_ || newcomer_->status() == Newcomer::Status::kComing) {
    return false;
  }
  std::string trouble = newcomer_->failure();
  if (newcomer_->status() == Newcomer::Status::kReady) {
    trouble = objection(newcomer_->introduction());
    if (trouble.empty()) {
      return true;
    }
    newcomer_->refuse(trouble);
  }
  newcomer_.reset();
  warn("a worker did not join: " + trouble);
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

std::optional<Settlement> Membership::join(Admission& admission, Member& member, const std::string& introduction) {
  const MPI_Comm everybody = admission.enter(introduction, options_.timeout);
  if (everybody == MPI_COMM_NULL) {
    return std::nullopt;
  }
  world_ = std::make_unique<World>(everybody, options_);
  if (auto settlement = come_together(member)) {
    return settlement;
  }
  return recover(member, {});
}

}  // namespace isochron
