/* The log of a run: lines as documented, cut where a run goes on, and the line of progress. The
 * page is looked at in a browser (tests/train/page.py). */
#include "runtime/base/file.h"
#include "runtime/train/log.h"
#include "tests/unit/test.h"
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

static char folder[] = "/tmp/graphc_train_log_XXXXXX", path[64], page[64];
static char why[512];
static const ErrorText e = {why, sizeof why};

static const char *content(const char *of) {
    static char text[8192];
    FileMap m;
    if (!CHECK(file_map(of, &m, why) == GRAPHC_OK)) return "";
    size_t n = m.size < sizeof text - 1 ? m.size : sizeof text - 1;
    if (n) memcpy(text, m.data, n);
    text[n] = 0;
    if (m.data) file_unmap(&m);
    return text;
}

static void put(Log *l, uint64_t step, double loss) {
    const LogStep s = {step, loss, 2e-4, 0.5, step * 100, 12345.5, 1 << 20, 0, false};
    CHECK(log_step(l, &s, e) == GRAPHC_OK);
}

static void check_lines(void) {
    Log l;
    CHECK(log_open(&l, path, NULL, NULL, 0, 4, e) == GRAPHC_OK);
    put(&l, 1, 2.5);
    put(&l, 2, (double)NAN);
    CHECK(log_eval(&l, 2, 2.25, e) == GRAPHC_OK);
    put(&l, 3, 1.0 / 3);
    log_close(&l);
    CHECK_STR(content(path),
              "{\"step\": 1, \"loss\": 2.5, \"lr\": 0.0002, \"grad_norm\": 0.5, \"tokens\": 100, "
              "\"tokens_per_s\": 12345.5, \"peak_bytes\": 1048576}\n"
              "{\"step\": 2, \"loss\": null, \"lr\": 0.0002, \"grad_norm\": 0.5, \"tokens\": 200, "
              "\"tokens_per_s\": 12345.5, \"peak_bytes\": 1048576}\n"
              "{\"step\": 2, \"eval_loss\": 2.25}\n"
              "{\"step\": 3, \"loss\": 0.3333333333333333, \"lr\": 0.0002, \"grad_norm\": 0.5, "
              "\"tokens\": 300, \"tokens_per_s\": 12345.5, \"peak_bytes\": 1048576}\n");
}

/* From step 2 on again, after a kill in the middle of a line. */
static void check_again(void) {
    Log l;
    FILE *f = fopen(path, "a"), *out = tmpfile();
    fputs("{\"step\": 4, \"lo", f);
    fclose(f);
    CHECK(log_open(&l, path, out, NULL, 2, 4, e) == GRAPHC_OK);
    CHECK(strstr(content(path), "{\"step\": 2, \"eval_loss\": 2.25}\n") &&
          !strstr(content(path), "\"step\": 3") && !strstr(content(path), "\"step\": 4"));
    CHECK(log_eval(&l, 3, 2, e) == GRAPHC_OK);
    log_close(&l);
    char line[64] = "";
    rewind(out);
    CHECK(fgets(line, sizeof line, out));
    CHECK_STR(line, "{\"step\": 3, \"eval_loss\": 2}\n");
    const char *text = content(path), *end = text + strlen(text) - strlen(line);
    CHECK_STR(end, line);
    fclose(out);
    CHECK(log_open(&l, "/nowhere/x", NULL, NULL, 0, 1, e) == GRAPHC_IO);
    log_close(&l);
}

static void check_progress(void) {
    const Log l = {.fd = -1, .steps = 1000, .first = 100, .start = 50, .eval_loss = 2.5};
    const LogStep s = {200, 2.34567, 1.5e-4, 0.987, 0, 52345, 11400000000, 0, false};
    char line[256];
    log_progress(&l, &s, 60, 200, line, sizeof line);
    CHECK_STR(
        line,
        "200/1000 [====>               ] loss 2.3457 (held out 2.5000)  lr 1.50e-04  |g| 0.987  "
        "52.3k tok/s  11.4GB  1:20 left");
    log_progress(&l, &s, 60, 83, line, sizeof line);
    CHECK_STR(line, "200/1000 [=>   ] loss 2.3457 (held out 2.5000)  lr 1.50e-04  52.3k tok/s  "
                    "1:20 left");
    CHECK(strlen(line) == 83);
    log_progress(&l, &s, 60, 40, line, sizeof line);
    CHECK_STR(line, "200/1000 [=>   ] loss 2.3457  1:20 left");
    log_progress(&l, &s, 60, 20, line, sizeof line);
    CHECK_STR(line, "200/1000 [=>   ] los");
    const Log fresh = {.fd = -1, .steps = 3, .eval_loss = (double)NAN};
    const LogStep last = {3, (double)NAN, 0, 1e30, 0, 1e30, 0, 0, false};
    log_progress(&fresh, &last, 1e9, 200, line, sizeof line);
    CHECK(strstr(line, "3/3 [====================] loss nan  lr 0.00e+00") &&
          strstr(line, " 0:00 left"));
}

static void check_page(void) {
    CHECK(log_html(path, page, "a < b", e) == GRAPHC_OK);
    CHECK(strstr(content(page), "<title>a &lt; b</title>"));
    FILE *f = fopen(path, "w"); /* a curve whose ends a double can hardly tell apart */
    fputs("{\"step\": 1, \"loss\": 1}\n{\"step\": 1, \"eval_loss\": 1.0000000000000002}\n", f);
    fclose(f);
    CHECK(log_html(path, page, "", e) == GRAPHC_OK);
    f = fopen(path, "a");
    fputs("no line\n", f);
    fclose(f);
    CHECK(log_html(path, page, "", e) == GRAPHC_INVALID);
    CHECK(strstr(why, ": line 3 is no line of a log"));
    CHECK(log_html("/nowhere", page, "", e) == GRAPHC_IO);
    CHECK(log_html(path, "/nowhere/x", "", e) != GRAPHC_OK);
}

/* A line is cut where a file may not grow: the message has the reason. */
static void check_full(void) {
    Log l;
    struct rlimit was, small;
    CHECK(log_open(&l, path, NULL, NULL, 0, 4, e) == GRAPHC_OK);
    CHECK(getrlimit(RLIMIT_FSIZE, &was) == 0 && signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    small = (struct rlimit){.rlim_cur = 50, .rlim_max = was.rlim_max};
    CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
    const LogStep s = {1, 2.5, 2e-4, 0.5, 100, 12345.5, 1 << 20, 0, false};
    errno = 0;
    CHECK_EQ_I(log_step(&l, &s, e), GRAPHC_IO);
    CHECK_STR(why, "the log cannot be written: File too large");
    CHECK(setrlimit(RLIMIT_FSIZE, &was) == 0);
    log_close(&l);
}

TEST_MAIN {
    if (!CHECK(mkdtemp(folder))) return;
    snprintf(path, sizeof path, "%s/log.jsonl", folder);
    snprintf(page, sizeof page, "%s/log.html", folder);
    check_lines();
    check_again();
    check_progress();
    check_page();
    check_full();
    CHECK(unlink(path) == 0 && unlink(page) == 0 && rmdir(folder) == 0);
}
