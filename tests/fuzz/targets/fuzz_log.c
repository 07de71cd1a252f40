/* libFuzzer: the lines of a run are refused with a reason, or a page is made of them; a run that
 * goes on from step 2 keeps whole lines of those steps. */
#include "runtime/train/log.h"
#include "tests/fuzz/targets/coverage.h"
#include "tests/fuzz/targets/folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    char lines[128], page[128], why[256] = "";
    const ErrorText e = {why, sizeof why};
    struct stat s;
    Log l;
    snprintf(lines, sizeof lines, "%s/log.jsonl", folder_path());
    snprintf(page, sizeof page, "%s/log.html", folder_path());
    folder_file("log.jsonl", bytes, size);
    if (log_html(lines, page, "<run> & \"title\"", e) != GRAPHC_OK && !why[0]) abort();
    if (log_open(&l, lines, NULL, NULL, 2, 5, e) != GRAPHC_OK) abort();
    log_close(&l);
    if (stat(lines, &s) != 0 || (size_t)s.st_size > size) abort();
    return 0;
}
