/* The status that every graphc function that can fail returns; GRAPHC_OK is 0. Installed with the
 * public headers. The numbers are the exit statuses of the command line, so one table serves both,
 * and they never change. What exactly went wrong is in the message that comes with the status. */
#ifndef GRAPHC_STATUS_H
#define GRAPHC_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

typedef enum graphc_status {
    GRAPHC_OK = 0,
    GRAPHC_MISMATCH = 1,    /* a comparison failed */
    GRAPHC_USAGE = 2,       /* the call or the command line is wrong */
    GRAPHC_INVALID = 3,     /* a file or a tensor is malformed or does not fit the others */
    GRAPHC_UNSUPPORTED = 4, /* well-formed, but not something graphc can do */
    GRAPHC_RUNTIME = 5,     /* device or run-time failure, or a broken invariant */
    GRAPHC_NO_MEMORY = 6,   /* of host or device */
    GRAPHC_IO = 7,          /* a file could not be read or written */
    GRAPHC_CANCELLED = 8    /* stopped because the caller asked for it */
} graphc_status;

/* Not looking at a returned status is a compiler warning. */
#if defined(__GNUC__)
#define GRAPHC_MUST_USE __attribute__((warn_unused_result))
#else
#define GRAPHC_MUST_USE
#endif

#ifdef __cplusplus
}
#endif
#endif
