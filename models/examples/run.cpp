// Runs a plan from C++17: plan and session own what they hold, statuses become exceptions, output memory is
// the caller's, made from the shapes that graphc gives once inputs are bound.
//
//   run PLAN [SYMBOL=VALUE ...]      run bert.plan batch=1 seq=64
#include <graphc.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct PlanEnd {
    void operator()(graphc_plan *p) const { graphc_plan_destroy(p); }
};
struct SessionEnd {
    void operator()(graphc_session *s) const { graphc_session_destroy(s); }
};
using Plan = std::unique_ptr<graphc_plan, PlanEnd>;
using Session = std::unique_ptr<graphc_session, SessionEnd>;

Plan load(const char *path) {
    char why[512];
    graphc_plan *p;
    if (graphc_plan_load(path, &p, why, sizeof why) != GRAPHC_OK) throw std::runtime_error(why);
    return Plan(p);
}

Session open(const Plan &plan) {
    char why[512];
    graphc_session *s;
    if (graphc_session_create(plan.get(), nullptr, &s, why, sizeof why) != GRAPHC_OK) throw std::runtime_error(why);
    return Session(s);
}

void check(const Session &s, graphc_status st) {
    if (st != GRAPHC_OK)
        throw std::runtime_error(std::string(graphc_status_name(st)) + ": " + graphc_session_error(s.get()));
}

std::size_t bytes_of(const graphc_tensor &t) {
    std::size_t n = (t.dtype.bits + 7u) / 8u;
    for (std::int32_t d = 0; d < t.rank; d++) n *= static_cast<std::size_t>(t.shape[d]);
    return n;
}

// A tensor and its memory.
struct Array {
    graphc_tensor t{};
    std::vector<char> memory;
    explicit Array(const graphc_tensor &shape) : t(shape), memory(bytes_of(shape) + 1) {
        t.data = memory.data();
        t.device = GRAPHC_CPU;
        t.device_id = 0;
    }
};

graphc_tensor input_shape(const graphc_io_info &io, const std::map<std::string, std::int64_t> &sizes) {
    graphc_tensor t{};
    t.dtype = io.dtype;
    t.rank = io.rank;
    for (std::int32_t d = 0; d < io.rank; d++) {
        auto known = sizes.find(io.dims[d]);
        t.shape[d] = io.sizes[d] >= 0 ? io.sizes[d] : known != sizes.end() ? known->second : 1;
    }
    return t;
}

void run(const char *path, const std::map<std::string, std::int64_t> &sizes) {
    Plan plan = load(path);
    Session s = open(plan);
    std::vector<Array> inputs, outputs;
    for (std::uint32_t i = 0; i < graphc_plan_inputs(plan.get()); i++) {
        inputs.emplace_back(input_shape(graphc_plan_input(plan.get(), i), sizes));
        check(s, graphc_bind_input(s.get(), i, &inputs.back().t));
    }
    // A dimension of -1 is one that only the run finds out: such an output stays the session's.
    std::vector<bool> own;
    for (std::uint32_t i = 0; i < graphc_plan_outputs(plan.get()); i++) {
        graphc_tensor t;
        check(s, graphc_output_shape(s.get(), 0, i, &t));
        bool known = true;
        for (std::int32_t d = 0; d < t.rank; d++) known = known && t.shape[d] >= 0;
        if (!known) t.rank = 0;
        own.push_back(known);
        outputs.emplace_back(t);
        if (known) check(s, graphc_bind_output(s.get(), i, &outputs.back().t));
    }
    check(s, graphc_run(s.get()));
    for (std::uint32_t i = 0; i < graphc_plan_outputs(plan.get()); i++) {
        graphc_tensor t = outputs[i].t;
        if (!own[i]) check(s, graphc_output(s.get(), i, &t));
        std::printf("%s [", graphc_plan_output(plan.get(), i).name);
        for (std::int32_t d = 0; d < t.rank; d++) std::printf("%s%lld", d ? ", " : "", static_cast<long long>(t.shape[d]));
        std::printf("]\n");
    }
}

} // namespace

int main(int argc, char **argv) try {
    std::map<std::string, std::int64_t> sizes;
    for (int i = 2; i < argc; i++) {
        std::string text = argv[i];
        auto eq = text.find('=');
        if (eq != std::string::npos) sizes[text.substr(0, eq)] = std::atoll(text.c_str() + eq + 1);
    }
    if (argc < 2) return std::fputs("run PLAN [SYMBOL=VALUE ...]\n", stderr), 2;
    run(argv[1], sizes);
    return 0;
} catch (const std::exception &e) {
    return std::fprintf(stderr, "run: %s\n", e.what()), 1;
}
