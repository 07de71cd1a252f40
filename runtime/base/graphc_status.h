/* The status every graphc function that can fail returns. Installed with the public headers.
 * The numbers are the exit statuses of the command line, so one table serves both. */
#ifndef GRAPHC_STATUS_H
#define GRAPHC_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

typedef enum graphc_status {
    GRAPHC_OK = 0,
    GRAPHC_MISMATCH = 1,    /* a comparison failed */
    GRAPHC_USAGE = 2,       /* the call or the command line is wrong */
    GRAPHC_INVALID = 3,     /* a file is malformed or inconsistent */
    GRAPHC_UNSUPPORTED = 4, /* well-formed, but not something graphc can do */
    GRAPHC_RUNTIME = 5,     /* device or run-time failure, or a broken invariant */
    GRAPHC_NO_MEMORY = 6,
    GRAPHC_IO = 7 /* a file could not be read or written */
} graphc_status;

#if defined(__GNUC__)
#define GRAPHC_MUST_USE __attribute__((warn_unused_result))
#else
#define GRAPHC_MUST_USE
#endif

#ifdef __cplusplus
}
#endif
#endif
