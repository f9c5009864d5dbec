// Simulated HCCL: data types and reductions. Sums round after every term, in the order of ranks.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hccl.h"

enum { I8, I16, I32, F16, F32, I64, U64, U8, U16, U32, F64, BF16, I128 };
enum { SUM, PROD, MAX, MIN };

size_t hccl_item_bytes(int dtype) {
  static const size_t bytes[] = {1, 2, 4, 2, 4, 8, 8, 1, 2, 4, 8, 2, 16, 0, 1, 1, 1, 1};
  return dtype >= 0 && dtype < (int)(sizeof bytes / sizeof *bytes) ? bytes[dtype] : 0;
}

// HCCL's API reference, HcclReduceOp and HcclAllReduce for Atlas A2: int8/16/32/64, fp16, fp32, bf16; no product of
// int16 and bf16.
int hccl_check_reduce(const char *name, int dtype, int op) {
  int known = dtype == I8 || dtype == I16 || dtype == I32 || dtype == I64 || dtype == F16 || dtype == F32 || dtype == BF16;
  int product = op == PROD && (dtype == I16 || dtype == BF16);
  if (known && !product) return HCCL_OK;
  sim_error(HCCL_E_NOT_SUPPORT, "EI0003: %s: data type %d with reduce operation %d is not supported on Atlas A2.", name, dtype, op);
  const char *rules = getenv("CANN_SIM_RULES");
  if (!rules || strcmp(rules, "warn") || !(known || dtype == F64 || dtype == U8)) return HCCL_E_NOT_SUPPORT;
  fprintf(stderr, "[simulated CANN] warning: %s\n", sim_error_text());
  return HCCL_OK;
}

static float from_f16(uint16_t x) {
  _Float16 h;
  memcpy(&h, &x, 2);
  return (float)h;
}

static uint16_t to_f16(float x) {
  _Float16 h = (_Float16)x;
  uint16_t out;
  memcpy(&out, &h, 2);
  return out;
}

static float from_bf16(uint16_t x) {
  uint32_t bits = (uint32_t)x << 16;
  float f;
  memcpy(&f, &bits, 4);
  return f;
}

static uint16_t to_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fc0;
  return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

#define COMBINE(op, a, b) ((op) == SUM ? (a) + (b) : (op) == PROD ? (a) * (b) : (op) == MAX ? ((a) > (b) ? (a) : (b)) : ((a) < (b) ? (a) : (b)))

#define PLAIN(type)                                                      \
  {                                                                      \
    type *a = into;                                                      \
    const type *b = from;                                                \
    for (size_t i = 0; i < n; i++) a[i] = (type)COMBINE(op, a[i], b[i]); \
    return;                                                              \
  }

#define HALF(load, store)                         \
  {                                               \
    uint16_t *a = into;                           \
    const uint16_t *b = from;                     \
    for (size_t i = 0; i < n; i++) {              \
      float x = load(a[i]), y = load(b[i]);       \
      a[i] = store(COMBINE(op, x, y));            \
    }                                             \
    return;                                       \
  }

void hccl_reduce(void *into, const void *from, size_t n, int dtype, int op) {
  switch (dtype) {
    case I8: PLAIN(int8_t)
    case I16: PLAIN(int16_t)
    case I32: PLAIN(int32_t)
    case I64: PLAIN(int64_t)
    case U8: PLAIN(uint8_t)
    case F32: PLAIN(float)
    case F64: PLAIN(double)
    case F16: HALF(from_f16, to_f16)
    case BF16: HALF(from_bf16, to_bf16)
  }
}
