// A run as scalars in TensorBoard's event file format: records framed as TFRecord (length and data, each with a masked
// CRC-32C), each an Event message of Protocol Buffers. Only the few fields that scalars take are written.
//
// Times are seconds since the start of the run, so the same log gives the same bytes. Where steps were summed up, a
// scalar is their mean and stands at the last of them.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>

#include "isochron/view/run_view.h"

namespace isochron::view {

/// What the file must be called for TensorBoard to find it.
inline constexpr std::string_view kEventFileName = "events.out.tfevents.0000000000.isochron";

void write_event_file(std::ostream& stream, const RunView& view);

/// Castagnoli's polynomial: crc32c("123456789") is 0xE3069283.
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes);

}  // namespace isochron::view
