#include "kernels/arm/arm_kernels.hpp"
#include "kernels/arm/dot_product.hpp"

namespace hexlm::dotprod {

void int8_linear(const Int8LinearArguments& arguments) { arm_int8_linear<DotProduct>(arguments); }

}  // namespace hexlm::dotprod
