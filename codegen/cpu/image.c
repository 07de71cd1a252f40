/* A linker for the one case that kernels need: self-contained ELF64 objects whose relocations are
 * PC-relative. Each object's allocatable sections are laid out together and relocated there;
 * nothing refers from one object to another. LLVM wrote the objects, but every offset is checked
 * all the same: a cached object comes from a file. */
#include "codegen/cpu/image.h"
#include "runtime/base/check.h"

#include <elf.h>
#include <string.h>

#define IMAGE_MAX_ALIGN 64

typedef struct Linker {
    Arena *arena;
    DiagSink *diags;
    const ImageObject *obj;
    const Elf64_Shdr *sections;
    uint32_t nsections;
    const char *names;
    uint64_t names_size;
    const Elf64_Sym *symbols;
    uint64_t nsymbols;
    const char *strings;
    uint64_t strings_size;
    uint64_t *placed; /* offset of each section in the image; UINT64_MAX: not in it */
} Linker;

static graphc_status bad(Linker *l, const char *what, const char *detail) {
    return diag(l->diags, D_CODEGEN, l->obj->name, "%s %s", what, detail);
}

static bool in_object(const Linker *l, uint64_t offset, uint64_t size) {
    return check_span(offset, size, l->obj->size);
}

static const void *at(const Linker *l, uint64_t offset) {
    return (const uint8_t *)l->obj->data + offset;
}

static const char *name_in(const char *table, uint64_t size, uint64_t i) {
    if (i >= size || !memchr(table + i, 0, size - i)) return "?";
    return table + i;
}

static graphc_status read_symbols(Linker *l, const Elf64_Shdr *s) {
    if (s->sh_entsize != sizeof(Elf64_Sym) || s->sh_link >= l->nsections)
        return bad(l, "malformed symbol table", "");
    const Elf64_Shdr *str = &l->sections[s->sh_link];
    l->symbols = at(l, s->sh_offset);
    l->nsymbols = s->sh_size / sizeof(Elf64_Sym);
    l->strings = at(l, str->sh_offset);
    l->strings_size = str->sh_size;
    return GRAPHC_OK;
}

static graphc_status read_object(Linker *l) {
    const Elf64_Ehdr *h = l->obj->data;
    if (l->obj->size < sizeof *h || memcmp(h->e_ident, ELFMAG, SELFMAG) != 0 ||
        h->e_machine != EM_X86_64 || h->e_type != ET_REL || h->e_shentsize != sizeof(Elf64_Shdr) ||
        !in_object(l, h->e_shoff, (uint64_t)h->e_shnum * sizeof(Elf64_Shdr)) ||
        h->e_shstrndx >= h->e_shnum)
        return bad(l, "not an x86-64 object", "");
    l->sections = at(l, h->e_shoff);
    l->nsections = h->e_shnum;
    l->placed = ARENA_ARRAY(l->arena, uint64_t, l->nsections);
    for (uint32_t i = 0; i < l->nsections; i++) {
        const Elf64_Shdr *s = &l->sections[i];
        l->placed[i] = UINT64_MAX;
        if (s->sh_type != SHT_NOBITS && !in_object(l, s->sh_offset, s->sh_size))
            return bad(l, "section out of bounds", "");
    }
    l->names = at(l, l->sections[h->e_shstrndx].sh_offset);
    l->names_size = l->sections[h->e_shstrndx].sh_size;
    for (uint32_t i = 0; i < l->nsections; i++)
        if (l->sections[i].sh_type == SHT_SYMTAB) GC_TRY(read_symbols(l, &l->sections[i]));
    return GRAPHC_OK;
}

/* Unwind tables and notes are allocatable but nothing at run time reads them. */
static bool wanted(const Linker *l, const Elf64_Shdr *s) {
    const char *name = name_in(l->names, l->names_size, s->sh_name);
    return (s->sh_flags & SHF_ALLOC) && s->sh_size > 0 && s->sh_type == SHT_PROGBITS &&
           strncmp(name, ".eh_frame", 9) != 0;
}

/* Gives every wanted section its offset from *end on and moves *end past them. */
static graphc_status place_sections(Linker *l, uint64_t *end) {
    for (uint32_t i = 0; i < l->nsections; i++) {
        const Elf64_Shdr *s = &l->sections[i];
        const char *name = name_in(l->names, l->names_size, s->sh_name);
        if ((s->sh_flags & SHF_ALLOC) && (s->sh_flags & (SHF_WRITE | SHF_TLS)) && s->sh_size > 0)
            return bad(l, "kernels may not have writable data: section", name);
        if (!wanted(l, s)) continue;
        uint64_t align = s->sh_addralign ? s->sh_addralign : 1;
        if (align > IMAGE_MAX_ALIGN || (align & (align - 1)))
            return bad(l, "unsupported alignment of section", name);
        l->placed[i] = (*end + align - 1) & ~(align - 1);
        *end = l->placed[i] + s->sh_size;
    }
    return GRAPHC_OK;
}

static graphc_status symbol_offset(Linker *l, uint64_t i, uint64_t *out) {
    if (i >= l->nsymbols) return bad(l, "relocation against a missing symbol", "");
    const Elf64_Sym *s = &l->symbols[i];
    const char *name = name_in(l->strings, l->strings_size, s->st_name);
    if (s->st_shndx == SHN_UNDEF) return bad(l, "kernel calls an outside function:", name);
    if (s->st_shndx >= l->nsections || l->placed[s->st_shndx] == UINT64_MAX)
        return bad(l, "relocation against a section that is not part of the image:", name);
    *out = l->placed[s->st_shndx] + s->st_value;
    return GRAPHC_OK;
}

/* S + A - P, in 32 or 64 bits. PLT32 to a local function is the same thing. */
static graphc_status relocate_one(Linker *l, const Elf64_Rela *r, uint32_t target, uint8_t *image) {
    uint32_t type = (uint32_t)ELF64_R_TYPE(r->r_info);
    uint64_t width = type == R_X86_64_PC64 ? 8 : 4, value;
    if (type != R_X86_64_PC32 && type != R_X86_64_PLT32 && type != R_X86_64_PC64)
        return bad(l, "unsupported relocation in section",
                   name_in(l->names, l->names_size, l->sections[target].sh_name));
    if (!check_span(r->r_offset, width, l->sections[target].sh_size))
        return bad(l, "relocation out of bounds", "");
    GC_TRY(symbol_offset(l, ELF64_R_SYM(r->r_info), &value));
    uint64_t place = l->placed[target] + r->r_offset;
    value = value + (uint64_t)r->r_addend - place;
    int64_t distance = (int64_t)value;
    if (width == 4 && (distance < INT32_MIN || distance > INT32_MAX))
        return bad(l, "the image is too large for 32-bit distances", "");
    memcpy(image + place, &value, width); /* little-endian on both sides */
    return GRAPHC_OK;
}

static graphc_status relocate_section(Linker *l, const Elf64_Shdr *s, uint8_t *image) {
    if (s->sh_info >= l->nsections) return bad(l, "malformed relocation section", "");
    if (l->placed[s->sh_info] == UINT64_MAX) return GRAPHC_OK; /* of a dropped section */
    if (s->sh_type == SHT_REL || s->sh_entsize != sizeof(Elf64_Rela))
        return bad(l, "unsupported relocation format", "");
    const Elf64_Rela *r = at(l, s->sh_offset);
    for (uint64_t i = 0; i < s->sh_size / sizeof *r; i++)
        GC_TRY(relocate_one(l, &r[i], s->sh_info, image));
    return GRAPHC_OK;
}

static graphc_status fill_image(Linker *l, uint8_t *image) {
    for (uint32_t i = 0; i < l->nsections; i++)
        if (l->placed[i] != UINT64_MAX)
            memcpy(image + l->placed[i], at(l, l->sections[i].sh_offset), l->sections[i].sh_size);
    for (uint32_t i = 0; i < l->nsections; i++)
        if (l->sections[i].sh_type == SHT_RELA || l->sections[i].sh_type == SHT_REL)
            GC_TRY(relocate_section(l, &l->sections[i], image));
    return GRAPHC_OK;
}

static graphc_status find_entry(Linker *l, const char *symbol, uint64_t *out) {
    for (uint64_t i = 0; i < l->nsymbols; i++) {
        const Elf64_Sym *s = &l->symbols[i];
        if (s->st_shndx != SHN_UNDEF && ELF64_ST_BIND(s->st_info) == STB_GLOBAL &&
            strcmp(name_in(l->strings, l->strings_size, s->st_name), symbol) == 0)
            return symbol_offset(l, i, out);
    }
    return bad(l, "the object lacks its entry", symbol);
}

graphc_status image_link(Arena *a, DiagSink *d, const ImageObject *objects, uint32_t n,
                         const char *const *symbols, uint64_t *entries, Image *out) {
    Linker *l = ARENA_ARRAY(a, Linker, n);
    uint64_t end = 0;
    for (uint32_t i = 0; i < n; i++) {
        l[i] = (Linker){.arena = a, .diags = d, .obj = &objects[i]};
        end = (end + IMAGE_MAX_ALIGN - 1) & ~(uint64_t)(IMAGE_MAX_ALIGN - 1);
        GC_TRY(read_object(&l[i]));
        GC_TRY(place_sections(&l[i], &end));
    }
    out->bytes = arena_alloc(a, end);
    out->size = end;
    for (uint32_t i = 0; i < n; i++) {
        GC_TRY(fill_image(&l[i], out->bytes));
        GC_TRY(find_entry(&l[i], symbols[i], &entries[i]));
    }
    return GRAPHC_OK;
}
