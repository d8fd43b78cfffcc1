#include "isochron/comm/reduction.h"

#include <stdexcept>
#include <string>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "isochron/comm/mpi_call.h"

namespace isochron {
namespace {

template <typename Number, Reduction kReduction>
void reduce(void* in, void* in_out, int* count, MPI_Datatype* /*type*/) {
  const auto* from = static_cast<const Number*>(in);
  auto* to = static_cast<Number*>(in_out);
  for (int i = 0; i < *count; ++i) {
    const auto a = static_cast<float>(from[i]);
    const auto b = static_cast<float>(to[i]);
    if constexpr (kReduction == Reduction::kSum) {
      to[i] = Number(a + b);
    } else if constexpr (kReduction == Reduction::kProduct) {
      to[i] = Number(a * b);
    } else if constexpr (kReduction == Reduction::kMin) {
      to[i] = a < b ? from[i] : to[i];
    } else {
      to[i] = a > b ? from[i] : to[i];
    }
  }
}

[[noreturn]] void refuse(c10::ScalarType type, const char* permitted) {
  throw std::invalid_argument(
      std::string("element type of a reduction is ") + c10::toString(type) + "; permitted: " + permitted);
}

template <typename Number>
MPI_User_function* own_function(Reduction reduction, c10::ScalarType type) {
  switch (reduction) {
    case Reduction::kSum:
      return &reduce<Number, Reduction::kSum>;
    case Reduction::kProduct:
      return &reduce<Number, Reduction::kProduct>;
    case Reduction::kMin:
      return &reduce<Number, Reduction::kMin>;
    case Reduction::kMax:
      return &reduce<Number, Reduction::kMax>;
    default:
      refuse(type, "an integer for a bitwise operation");
  }
}

MPI_Op known(Reduction reduction, c10::ScalarType type) {
  const bool logical = type == c10::ScalarType::Bool;
  switch (reduction) {
    case Reduction::kSum:
      return logical ? MPI_LOR : MPI_SUM;
    case Reduction::kProduct:
      return logical ? MPI_LAND : MPI_PROD;
    case Reduction::kMin:
      return MPI_MIN;
    case Reduction::kMax:
      return MPI_MAX;
    case Reduction::kBitAnd:
      return MPI_BAND;
    case Reduction::kBitOr:
      return MPI_BOR;
    case Reduction::kBitXor:
      return MPI_BXOR;
  }
  refuse(type, "sum, product, min, max and bitwise operations");
}

}  // namespace

MPI_Datatype mpi_type(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Float:
      return MPI_FLOAT;
    case c10::ScalarType::Double:
      return MPI_DOUBLE;
    case c10::ScalarType::Half:
    case c10::ScalarType::BFloat16:
      return MPI_UINT16_T;
    case c10::ScalarType::Bool:
    case c10::ScalarType::Byte:
      return MPI_UINT8_T;
    case c10::ScalarType::Char:
      return MPI_INT8_T;
    case c10::ScalarType::Short:
      return MPI_INT16_T;
    case c10::ScalarType::Int:
      return MPI_INT32_T;
    case c10::ScalarType::Long:
      return MPI_INT64_T;
    default:
      refuse(type, "Float, Double, Half, BFloat16, Bool, Byte, Char, Short, Int, Long");
  }
}

MpiReductions::~MpiReductions() {
  for (auto& [key, operation] : own_) {
    MPI_Op_free(&operation);
  }
}

MPI_Op MpiReductions::operation(Reduction reduction, c10::ScalarType type) {
  const bool half = type == c10::ScalarType::Half;
  if (!half && type != c10::ScalarType::BFloat16) {
    if (c10::isFloatingType(type) && reduction >= Reduction::kBitAnd) {
      refuse(type, "an integer for a bitwise operation");
    }
    return known(reduction, type);
  }
  auto* function = half ? own_function<c10::Half>(reduction, type) : own_function<c10::BFloat16>(reduction, type);
  const std::lock_guard lock(mutex_);
  const auto [place, fresh] = own_.try_emplace({reduction, type}, MPI_OP_NULL);
  if (fresh) {
    check_mpi(MPI_Op_create(function, /*commute=*/1, &place->second), "MPI_Op_create");
  }
  return place->second;
}

}  // namespace isochron
