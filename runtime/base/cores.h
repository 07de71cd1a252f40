/* How many threads pay: the cores of the process's affinity mask, and no more whole cores than the
 * CPU quotas of its control groups give it (cgroup v2 cpu.max, v1 cpu.cfs_quota_us), as containers
 * set them. Threads beyond a quota would be stopped together for the rest of each period. */
#ifndef BASE_CORES_H
#define BASE_CORES_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

uint32_t cores_available(void); /* at least 1 */
/* How many threads to use when `asked` are asked for: as many, or with 0 what GRAPHC_THREADS says,
 * or where that is not a positive number, cores_available(). */
uint32_t cores_threads(uint32_t asked);

/* Whole cores that the quotas allow, at least 1; UINT32_MAX if there is none. groups: a file like
 * /proc/self/cgroup, mount: a folder like /sys/fs/cgroup. */
uint32_t cores_of_quota(const char *groups, const char *mount);

/* Stacks for compiling. What walks a graph or a formula calls itself as deep as that is, so the
 * depth is the file's, and the limit that the process or a caller's thread has may be any. */

/* Of address space; memory only where it is touched. */
#define STACK_BYTES ((size_t)64 << 20)

/* pthread_create with such a stack: 0, or the error's number. */
int stack_thread(pthread_t *t, void *(*fn)(void *ctx), void *ctx);
/* arena_guard(fn, ctx) on such a stack, while the caller waits. */
size_t stack_guard(void (*fn)(void *ctx), void *ctx);

#endif
