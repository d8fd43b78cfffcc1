// The parts of the module isochron._core, one function for each of core's ideas that Python needs.
//
// States go as bytes (State::serialize), enumerations as their words, intervals as pairs. std::invalid_argument becomes
// ValueError; isochron::Error, InvariantError and OrderError become classes of those names.
#pragma once

#include <nanobind/nanobind.h>

namespace isochron::python {

void bind_options(nanobind::module_& module);   // the options of a job
void bind_policy(nanobind::module_& module);    // who takes part, policies and what they decide
void bind_sample(nanobind::module_& module);    // the sampler and the ledger
void bind_dispatch(nanobind::module_& module);  // what a worker does next out of step, and where parameters lie
void bind_gain(nanobind::module_& module);      // what a run achieved, and what its shares gain
void bind_records(nanobind::module_& module);   // what steps leave behind, and what workers tell one another
void bind_replica(nanobind::module_& module);   // the step protocol
void bind_session(nanobind::module_& module);   // links, and a worker's way through an asynchronous job
void bind_trace(nanobind::module_& module);     // the run log, and what this process takes of its machine

}  // namespace isochron::python
