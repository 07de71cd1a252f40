/* AMX on processors without it: each of its instructions raises SIGILL there, and the handler does
 * what the Intel SDM (volume 2, "Intel AMX instruction set reference") says, a microsecond or two
 * for each. Code for tile registers is so tested on every machine with AVX512-BF16. One thread. */
#ifndef TESTS_UNIT_CODEGEN_TILES_H
#define TESTS_UNIT_CODEGEN_TILES_H

#include "runtime/cpu/isa.h"
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum { TILE_REGISTERS = 8, TILE_MOST_ROWS = 16, TILE_ROW_BYTES = 64 };

typedef struct TileRegister {
    uint32_t rows, bytes; /* of a row */
    uint8_t at[TILE_MOST_ROWS][TILE_ROW_BYTES];
} TileRegister;

static TileRegister tile_registers[TILE_REGISTERS];

/* An instruction of AMX: VEX of three bytes, map 0F38, and its operands. */
typedef struct TileInstruction {
    uint32_t prefix; /* 0 none, 1 66, 2 F3, 3 F2 */
    uint8_t opcode;
    uint32_t mod, reg, rm, third; /* register numbers, without VEX's highest bits for tiles */
    uint64_t at, step;            /* address; of a tile's memory, from row to row */
    uint64_t length;
} TileInstruction;

static uint64_t tile_general(const ucontext_t *c, uint32_t r) {
    static const int of[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                               REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                               REG_R12, REG_R13, REG_R14, REG_R15};
    return (uint64_t)c->uc_mcontext.gregs[of[r]];
}

static uint64_t tile_displacement(const uint8_t *p, uint32_t bytes) {
    int32_t wide = 0;
    if (bytes == 1) return (uint64_t)(int64_t)(int8_t)*p;
    memcpy(&wide, p, bytes);
    return (uint64_t)(int64_t)wide;
}

/* ModRM's memory operand at p; false: none that AMX knows. */
static bool tile_address(const ucontext_t *c, TileInstruction *t, const uint8_t *p, uint32_t x,
                         uint32_t b) {
    const uint8_t *from = p++;
    uint32_t base = t->rm, bytes = t->mod == 1 ? 1 : t->mod == 2 ? 4 : 0;
    bool based = true;
    if (t->rm == 4) {
        const uint32_t index = (uint32_t)(*p >> 3 & 7) | x << 3;
        base = *p & 7;
        if (index != 4) t->step = tile_general(c, index) << (*p >> 6);
        p++;
    } else if (t->rm == 5 && !t->mod) {
        return false; /* beside the code: constants, which compiled code has none of for tiles */
    }
    if (base == 5 && !t->mod) based = false, bytes = 4;
    t->at = (based ? tile_general(c, base | b << 3) : 0) + tile_displacement(p, bytes);
    t->length += (uint64_t)(p + bytes - from);
    return true;
}

static bool tile_decode(const ucontext_t *c, TileInstruction *t) {
    const uint8_t *p = (const uint8_t *)c->uc_mcontext.gregs[REG_RIP];
    if (p[0] != 0xc4 || (p[1] & 31) != 2 || (p[2] & 0x84)) return false;
    *t = (TileInstruction){.prefix = p[2] & 3, .opcode = p[3]};
    t->third = ~(p[2] >> 3) & 7;
    t->mod = p[4] >> 6, t->reg = p[4] >> 3 & 7, t->rm = p[4] & 7;
    t->length = 4;
    if (t->mod != 3)
        return tile_address(c, t, p + 4, ~(uint32_t)p[1] >> 6 & 1, ~(uint32_t)p[1] >> 5 & 1);
    t->length++;
    return true;
}

static void tile_configure(const uint8_t *config) {
    memset(tile_registers, 0, sizeof tile_registers);
    if (!config[0]) return;
    for (uint32_t i = 0; i < TILE_REGISTERS; i++) {
        uint16_t bytes;
        memcpy(&bytes, config + 16 + 2 * i, 2);
        tile_registers[i].bytes = bytes;
        tile_registers[i].rows = config[48 + i];
        if (bytes > TILE_ROW_BYTES || config[48 + i] > TILE_MOST_ROWS) abort();
    }
}

static void tile_load(TileRegister *r, const TileInstruction *t) {
    memset(r->at, 0, sizeof r->at);
    for (uint32_t i = 0; i < r->rows; i++)
        memcpy(r->at[i], (const void *)(t->at + i * t->step), r->bytes);
}

static void tile_store(const TileRegister *r, const TileInstruction *t) {
    for (uint32_t i = 0; i < r->rows; i++)
        memcpy((void *)(t->at + i * t->step), r->at[i], r->bytes);
}

static float tile_bf16(const uint8_t *p) {
    uint16_t bits;
    memcpy(&bits, p, 2);
    const uint32_t wide = (uint32_t)bits << 16;
    float f;
    memcpy(&f, &wide, 4);
    return f;
}

/* Even and odd products are summed apart, each with one rounding. */
static void tile_multiply_bf16(TileRegister *d, const TileRegister *a, const TileRegister *b) {
    for (uint32_t i = 0; i < d->rows; i++)
        for (uint32_t j = 0; j < d->bytes; j += 4) {
            float even = 0, odd = 0, sum;
            for (uint32_t k = 0; k < a->bytes / 4; k++) {
                const uint8_t *x = a->at[i] + 4 * k, *y = b->at[k] + j;
                even = fmaf(tile_bf16(x), tile_bf16(y), even);
                odd = fmaf(tile_bf16(x + 2), tile_bf16(y + 2), odd);
            }
            memcpy(&sum, d->at[i] + j, 4);
            sum += even + odd;
            memcpy(d->at[i] + j, &sum, 4);
        }
}

static int32_t tile_byte(uint8_t x, bool has_sign) {
    return has_sign ? (int8_t)x : x;
}

static void tile_multiply_bytes(TileRegister *d, const TileRegister *a, const TileRegister *b,
                                uint32_t prefix) {
    const bool left = prefix >= 2, right = prefix == 1 || prefix == 3; /* are signed */
    for (uint32_t i = 0; i < d->rows; i++)
        for (uint32_t j = 0; j < d->bytes; j += 4) {
            uint32_t sum;
            memcpy(&sum, d->at[i] + j, 4);
            for (uint32_t k = 0; k < a->bytes; k++)
                sum += (uint32_t)(tile_byte(a->at[i][k], left) *
                                  tile_byte(b->at[k / 4][j + k % 4], right));
            memcpy(d->at[i] + j, &sum, 4);
        }
}

/* false: not an instruction of AMX that is known here. */
static bool tile_execute(const TileInstruction *t) {
    TileRegister *d = &tile_registers[t->reg];
    const TileRegister *a = &tile_registers[t->rm], *b = &tile_registers[t->third];
    const bool memory = t->mod != 3;
    if (t->opcode == 0x49 && memory && !t->prefix) {
        tile_configure((const void *)t->at);
    } else if (t->opcode == 0x49 && !memory && !t->prefix) {
        memset(tile_registers, 0, sizeof tile_registers); /* tilerelease */
    } else if (t->opcode == 0x49 && !memory && t->prefix == 3) {
        memset(d->at, 0, sizeof d->at);
    } else if (t->opcode == 0x4b && memory && t->prefix != 2) {
        tile_load(d, t); /* with a hint for the caches (66) or without */
    } else if (t->opcode == 0x4b && memory) {
        tile_store(d, t);
    } else if (t->opcode == 0x5c && !memory && t->prefix == 2) {
        tile_multiply_bf16(d, a, b);
    } else if (t->opcode == 0x5e && !memory) {
        tile_multiply_bytes(d, a, b, t->prefix);
    } else {
        return false;
    }
    return true;
}

static void tile_trap(int sig, siginfo_t *info, void *context) {
    ucontext_t *c = context;
    TileInstruction t;
    (void)sig, (void)info;
    if (!tile_decode(c, &t) || !tile_execute(&t)) abort();
    c->uc_mcontext.gregs[REG_RIP] += (greg_t)t.length;
}

/* Whether code of that form can be run: by the processor, or so. */
static inline bool tiles_support(PlanForm form) {
    if (isa_supports(form)) return true;
    if (form != PLAN_x86_64_amx || !isa_supports(PLAN_x86_64_bf16)) return false;
    struct sigaction act = {.sa_sigaction = tile_trap, .sa_flags = SA_SIGINFO};
    return sigaction(SIGILL, &act, NULL) == 0;
}

#endif
