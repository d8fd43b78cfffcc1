// SIGTERM and SIGINT as a request to stop: the first one is noted, a second one ends the process as usual.
//
// Signals belong to the process, so this has one state however many objects there are.
#pragma once

#include <csignal>

namespace isochron {

class StopSignal {
 public:
  StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  // Puts back what handled the signals before.
  ~StopSignal();

  // The first that came; 0: none.
  static int received();

 private:
  struct sigaction terminate_before_{};
  struct sigaction interrupt_before_{};
};

}  // namespace isochron
