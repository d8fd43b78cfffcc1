// Whether a sanitizer is built in: it makes code many times slower, and keeps memory that was freed.
#pragma once

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ISOCHRON_SANITIZED 1
#endif
#endif

namespace isochron {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(ISOCHRON_SANITIZED)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace isochron
