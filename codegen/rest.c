/* What compiling leaves behind in memory, given back: pages of LLVM that were read from its file
 * and are not needed until the next compilation, and what the heap keeps of freed blocks. From then
 * on the heap keeps no large ones: left to itself, it raises what it takes for large to the largest
 * that was ever freed. */
#include "codegen/codegen.h"
#include "runtime/base/file.h"
#include <link.h>
#include <llvm-c/Core.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

/* Smaller ones come and go by the thousand in an evaluation, and the system zeroes each map. */
enum { LARGE_BLOCK = 1 << 18, HEAP_TOP = 1 << 20 };

/* Of the library or program that holds `ctx`; never what is written when loading. */
static int rest_segments(struct dl_phdr_info *info, size_t size, void *ctx) {
    const uintptr_t at = (uintptr_t)ctx;
    bool holds = false;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        holds |= p->p_type == PT_LOAD && at - info->dlpi_addr - p->p_vaddr < p->p_memsz;
    }
    for (int i = 0; holds && i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type == PT_LOAD && !(p->p_flags & PF_W))
            file_rest((const void *)(info->dlpi_addr + p->p_vaddr), p->p_filesz);
    }
    return holds;
}

void codegen_rest(void) {
    dl_iterate_phdr(rest_segments, (void *)(uintptr_t)LLVMContextCreate);
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK);
    mallopt(M_TRIM_THRESHOLD, HEAP_TOP);
    malloc_trim(0);
#endif
}
