// The kernels for one instruction set. Compiled once for each, with MILEPOST_VARIANT (its symbol)
// and MILEPOST_VARIANT_NAME (its name in Python); what is defined here has internal linkage, but
// for the one symbol at the end.

#include "backward.hpp"
#include "policies/bias_dense.hpp"
#include "policies/by_distance.hpp"
#include "policies/cope.hpp"
#include "policies/cope_alibi.hpp"
#include "policies/forgetting.hpp"
#include "policies/softmax.hpp"
#include "policies/stick_breaking.hpp"

namespace milepost {
namespace {

void forward_any(const Call& call) {
    switch (call.op) {
        case Op::softmax:
            return forward<Softmax>(call);
        case Op::bias_table:
            return forward<BiasTable>(call);
        case Op::bias_dense:
            return forward<BiasDense>(call);
        case Op::relative:
            return forward<Relative>(call);
        case Op::cope:
            return forward<Cope>(call);
        case Op::cope_alibi:
            return forward<CopeAlibi>(call);
        case Op::forgetting:
            return forward<Forgetting>(call);
        case Op::stick_breaking:
            return forward<StickBreaking>(call);
    }
}

void backward_any(const Call& call) {
    switch (call.op) {
        case Op::softmax:
            return backward<Softmax>(call);
        case Op::bias_table:
            return backward<BiasTable>(call);
        case Op::bias_dense:
            return backward<BiasDense>(call);
        case Op::relative:
            return backward<Relative>(call);
        case Op::cope:
            return backward<Cope>(call);
        case Op::cope_alibi:
            return backward<CopeAlibi>(call);
        case Op::forgetting:
            return backward<Forgetting>(call);
        case Op::stick_breaking:
            return backward<StickBreaking>(call);
    }
}

const Kernels kernels = {MILEPOST_VARIANT_NAME, forward_any, backward_any};

} // namespace

#define MILEPOST_JOIN(prefix, suffix) prefix##suffix
#define MILEPOST_SYMBOL(suffix) MILEPOST_JOIN(kernels_, suffix)
const Kernels* const MILEPOST_SYMBOL(MILEPOST_VARIANT) = &kernels;

} // namespace milepost
