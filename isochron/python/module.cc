#include "isochron/core/error.h"
#include "isochron/core/replica/replica.h"
#include "isochron/python/bind.h"

namespace nb = nanobind;

NB_MODULE(_core, module) {
  // Threads that still wait for other workers when an interpreter ends keep what they use: no fault of ours to report.
  nb::set_leak_warnings(false);
  module.attr("VERSION") = ISOCHRON_VERSION;
  [[maybe_unused]] const nb::exception<isochron::Error> error(module, "Error", PyExc_RuntimeError);
  [[maybe_unused]] const nb::exception<isochron::InvariantError> defect(module, "InvariantError", PyExc_AssertionError);
  [[maybe_unused]] const nb::exception<isochron::OrderError> order(module, "OrderError", PyExc_RuntimeError);
  isochron::python::bind_options(module);
  isochron::python::bind_policy(module);
  isochron::python::bind_sample(module);
  isochron::python::bind_dispatch(module);
  isochron::python::bind_records(module);
  isochron::python::bind_replica(module);
  isochron::python::bind_session(module);
  isochron::python::bind_trace(module);
  isochron::python::bind_gain(module);
}
