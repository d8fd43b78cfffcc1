// What the thread sanitizer is not to look at. Debian's cpp-httplib is not compiled for it: that the first of two
// requests at once makes the library's list of methods, and the second waits for it, is decided by an atomic of its own
// (a function's static variable), which the sanitizer does not see.
extern "C" const char* __tsan_default_suppressions();  // NOLINT(bugprone-reserved-identifier): the sanitizer's name

extern "C" const char* __tsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
  return "called_from_lib:libcpp-httplib.so\n";
}
