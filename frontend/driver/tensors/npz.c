/* Source of the layout: PKWARE's APPNOTE 6.3.10, sections 4.3 and 4.5.3 (zip64). */
#include "frontend/driver/tensors/npz.h"
#include "runtime/base/check.h"

#include <limits.h>
#include <string.h>
#include <zlib.h>

/* Sizes of the fixed parts of records, before names and extra fields. */
enum { LOCAL = 30, CENTRAL = 46, END = 22, END64 = 56, LOCATOR64 = 20 };
enum { MOST_COMMENT = 0xffff, MOST_ENTRIES = 1 << 16, MOST_RATIO = 1032, STORED = 0, DEFLATED = 8 };

static uint64_t number(const uint8_t *p, unsigned bytes) {
    uint64_t v = 0;
    for (unsigned i = bytes; i-- > 0;) v = v << 8 | p[i];
    return v;
}

static bool has_mark(const uint8_t *p, const char mark[4]) {
    return memcmp(p, mark, 4) == 0;
}

bool npz_is(const uint8_t *bytes, uint64_t n) {
    return n >= END && (has_mark(bytes, "PK\3\4") || has_mark(bytes, "PK\5\6"));
}

/* Where the list of entries begins, and how many there are. */
typedef struct Directory {
    uint64_t at, count;
} Directory;

static bool find_end(const uint8_t *b, uint64_t n, uint64_t *end) {
    uint64_t least = n > END + MOST_COMMENT ? n - END - MOST_COMMENT : 0;
    for (uint64_t i = n - END + 1; i-- > least;)
        if (has_mark(b + i, "PK\5\6")) return *end = i, true;
    return false;
}

static bool find_directory(const uint8_t *b, uint64_t n, Directory *d) {
    uint64_t end, end64;
    if (!find_end(b, n, &end)) return false;
    *d = (Directory){number(b + end + 16, 4), number(b + end + 10, 2)};
    if (end < LOCATOR64 || !has_mark(b + end - LOCATOR64, "PK\6\7")) return true;
    end64 = number(b + end - LOCATOR64 + 8, 8);
    if (!check_span(end64, END64, n) || !has_mark(b + end64, "PK\6\6")) return false;
    *d = (Directory){number(b + end64 + 48, 8), number(b + end64 + 32, 8)};
    return true;
}

/* Of a record's three numbers those that do not fit into 32 bits stand in an extra field, in this
 * order: size, packed, offset. */
static bool read_zip64(const uint8_t *extra, uint64_t n, uint64_t *v[3]) {
    for (uint64_t at = 0; at + 4 <= n;) {
        uint64_t id = number(extra + at, 2), size = number(extra + at + 2, 2), used = 0;
        if (size > n - at - 4) return false;
        for (int i = 0; id == 1 && i < 3; i++) {
            if (*v[i] != UINT32_MAX) continue;
            if (used + 8 > size) return false;
            *v[i] = number(extra + at + 4 + used, 8);
            used += 8;
        }
        at += 4 + size;
    }
    return true;
}

/* The bytes behind the record that stands before them. */
static bool find_data(const uint8_t *b, uint64_t n, uint64_t offset, NpzEntry *e) {
    if (!check_span(offset, LOCAL, n) || !has_mark(b + offset, "PK\3\4")) return false;
    uint64_t data = offset + LOCAL + number(b + offset + 26, 2) + number(b + offset + 28, 2);
    e->data = b + data;
    return check_span(data, e->packed, n);
}

/* One entry of the list; *at moves on. */
static bool read_entry(Arena *a, const uint8_t *b, uint64_t n, uint64_t *at, NpzEntry *e) {
    if (!check_span(*at, CENTRAL, n) || !has_mark(b + *at, "PK\1\2")) return false;
    const uint8_t *p = b + *at;
    uint64_t name = number(p + 28, 2), extra = number(p + 30, 2), more = number(p + 32, 2);
    uint64_t offset = number(p + 42, 4);
    if (!check_span(*at, CENTRAL + name + extra + more, n)) return false;
    *e = (NpzEntry){.packed = number(p + 20, 4), .size = number(p + 24, 4)};
    e->method = (uint32_t)number(p + 10, 2);
    e->crc = (uint32_t)number(p + 16, 4);
    if (!read_zip64(p + CENTRAL + name, extra, (uint64_t *[3]){&e->size, &e->packed, &offset}))
        return false;
    bool npy = name > 4 && memcmp(p + CENTRAL + name - 4, ".npy", 4) == 0;
    e->name = arena_strndup(a, (const char *)p + CENTRAL, name - (npy ? 4 : 0));
    *at += CENTRAL + name + extra + more;
    return !(number(p + 8, 2) & 1) && find_data(b, n, offset, e); /* not encrypted */
}

graphc_status npz_list(Arena *a, const uint8_t *bytes, uint64_t n, NpzEntries *out, ErrorText e) {
    Directory d;
    NpzEntry entry;
    if (n < END || !find_directory(bytes, n, &d) || d.count > MOST_ENTRIES)
        return error_set(e, GRAPHC_INVALID, "the zip archive has no list of its entries");
    for (uint64_t i = 0; i < d.count; i++) {
        if (!read_entry(a, bytes, n, &d.at, &entry))
            return error_set(e, GRAPHC_INVALID, "entry %llu of the zip archive is damaged",
                             (unsigned long long)i);
        vec_push(a, out, entry);
    }
    return GRAPHC_OK;
}

static bool inflate_all(const NpzEntry *entry, uint8_t *to) {
    z_stream z = {.next_in = (Bytef *)(uintptr_t)entry->data, .next_out = to};
    uint64_t in = entry->packed, room = entry->size;
    if (inflateInit2(&z, -MAX_WBITS) != Z_OK) return false;
    int got = Z_OK;
    while (got == Z_OK) {
        if (!z.avail_in) in -= z.avail_in = in > UINT_MAX ? UINT_MAX : (uInt)in;
        if (!z.avail_out) room -= z.avail_out = room > UINT_MAX ? UINT_MAX : (uInt)room;
        got = inflate(&z, Z_NO_FLUSH);
    }
    bool all = got == Z_STREAM_END && !z.avail_out && !room;
    inflateEnd(&z);
    return all;
}

static bool whole(const uint8_t *p, const NpzEntry *entry) {
    uLong crc = crc32(0, NULL, 0);
    for (uint64_t at = 0; at < entry->size;) {
        uint64_t rest = entry->size - at;
        uInt n = rest > UINT_MAX ? UINT_MAX : (uInt)rest;
        crc = crc32(crc, p + at, n);
        at += n;
    }
    return crc == entry->crc;
}

static graphc_status damaged(const NpzEntry *entry, ErrorText e) {
    return error_set(e, GRAPHC_INVALID, "array \"%s\" is damaged", entry->name);
}

graphc_status npz_unpack(Arena *a, const NpzEntry *entry, const uint8_t **out, ErrorText e) {
    *out = entry->data;
    if (entry->method == STORED)
        return entry->packed == entry->size && whole(entry->data, entry) ? GRAPHC_OK
                                                                         : damaged(entry, e);
    if (entry->method != DEFLATED)
        return error_set(e, GRAPHC_UNSUPPORTED,
                         "array \"%s\" is packed by method %u; stored and deflated are known",
                         entry->name, entry->method);
    uint8_t *to =
        entry->size / MOST_RATIO <= entry->packed ? arena_alloc(a, (size_t)entry->size + 1) : NULL;
    *out = to;
    return to && inflate_all(entry, to) && whole(to, entry) ? GRAPHC_OK : damaged(entry, e);
}
