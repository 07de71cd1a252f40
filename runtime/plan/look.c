/* What single records of a plan say. */
#include "runtime/plan.h"

const char *plan_str(const Plan *p, PlanStr s) {
    return p->strings + s;
}

const char *plan_input_name(const Plan *p, uint64_t i) {
    return plan_str(p, p->inputs[i].name);
}

const char *plan_output_name(const Plan *p, uint64_t i) {
    return plan_str(p, p->outputs[i].name);
}

const char *plan_state_name(const Plan *p, uint64_t i) {
    return plan_str(p, p->states[i].io.name);
}

DType plan_dtype(uint32_t onnx_code) {
    DType t;
    return onnx_code <= INT32_MAX && dtype_from_onnx((int)onnx_code, &t) ? t : DT_none;
}

uint32_t plan_root(const PlanBuffer *target_buffers, uint32_t b) {
    return target_buffers[b].alias ? target_buffers[b].alias - 1 : b;
}

uint32_t plan_step_kernel(const Plan *p, const PlanStep *s, uint32_t i) {
    return i ? p->lists[s->variants + i - 1] : s->kernel;
}

PlanRange plan_range(const Plan *p, const PlanTarget *t, uint32_t entry) {
    return (PlanRange){entry ? p->lists[t->ends + entry - 1] : t->nprepare,
                       p->lists[t->ends + entry]};
}

bool plan_lists(const Plan *p, PlanList list, uint32_t n, uint32_t v) {
    const uint32_t *at = p->lists + list;
    uint32_t lo = 0, hi = n;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (at[mid] < v)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n && at[lo] == v;
}
