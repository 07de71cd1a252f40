/* libFuzzer: an adapter's folder, its configuration and behind a zero its tensors, is refused with
 * a reason, or read; a configuration that is read is written, and read the same again. */
#include "runtime/train/adapter/adapter.h"
#include "tests/fuzz/targets/coverage.h"
#include "tests/fuzz/targets/folder.h"

static void config(const char *text, size_t n) {
    char why[256] = "", *first = NULL, *second = NULL;
    const ErrorText e = {why, sizeof why};
    size_t nfirst = 0, nsecond = 0;
    int64_t rank;
    double scale;
    AdapterConfig c, again;
    if (adapter_config_parse(text, n, &c, e) != GRAPHC_OK) {
        if (!why[0]) abort();
        return;
    }
    if (adapter_scale(&c, "model.layers.0.self_attn.q_proj", &rank, &scale, e) == GRAPHC_OK &&
        rank < 1)
        abort();
    if (adapter_config_text(&c, &first, &nfirst, e) != GRAPHC_OK ||
        adapter_config_parse(first, nfirst, &again, e) != GRAPHC_OK ||
        adapter_config_text(&again, &second, &nsecond, e) != GRAPHC_OK || nfirst != nsecond ||
        memcmp(first, second, nfirst) != 0) {
        fprintf(stderr, "%s: %.*s\n", why, (int)nfirst, first ? first : "");
        abort();
    }
    free(first), free(second);
    adapter_config_free(&c), adapter_config_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    const uint8_t *end = size ? memchr(bytes, 0, size) : NULL;
    const size_t n = end ? (size_t)(end - bytes) : size, behind = end ? n + 1 : n;
    char *text = malloc(n + !n), why[256] = "";
    Adapter a;
    if (n) memcpy(text, bytes, n);
    config(text, n);
    free(text);
    folder_file("adapter_config.json", bytes, n);
    folder_file("adapter_model.safetensors", bytes + behind, size - behind);
    if (adapter_read(folder_path(), &a, (ErrorText){why, sizeof why}) == GRAPHC_OK)
        adapter_free(&a);
    else if (!why[0])
        abort();
    return 0;
}
