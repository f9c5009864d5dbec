// Simulated HCCL: the collectives. Each one publishes its input and picks what it needs from what the others published.
#include <stdlib.h>
#include <string.h>

#include "hccl.h"

typedef struct {
  char *out;
  size_t start, bytes;  // the part of every rank's data that is wanted
  int dtype, op, root;
  size_t stride;        // gathers: where rank r's data begins
} Want;

static void take(Want *w, size_t offset, size_t bytes, const char *chunk, int combine) {
  size_t from = offset > w->start ? offset : w->start;
  size_t end = offset + bytes < w->start + w->bytes ? offset + bytes : w->start + w->bytes;
  if (from >= end || !w->out) return;
  char *out = w->out + (from - w->start);
  const char *in = chunk + (from - offset);
  if (combine) {
    hccl_reduce(out, in, (end - from) / hccl_item_bytes(w->dtype), w->dtype, w->op);
  } else {
    memcpy(out, in, end - from);
  }
}

static void use_reduce(void *user, int rank, size_t offset, size_t bytes, const char *chunk) { take(user, offset, bytes, chunk, rank > 0); }

static void use_root(void *user, int rank, size_t offset, size_t bytes, const char *chunk) {
  Want *w = user;
  if (rank == w->root) take(w, offset, bytes, chunk, 0);
}

static void use_gather(void *user, int rank, size_t offset, size_t bytes, const char *chunk) {
  Want *w = user;
  memcpy(w->out + w->stride * (size_t)rank + offset, chunk, bytes);
}

// Input and output may be the same memory, so the result is put together beside it.
static int reduced(HcclCommunicator *c, HcclCall call, const void *in, void *out, size_t start, size_t bytes, int keep) {
  int code = hccl_check_reduce(call.name, call.dtype, call.reduce);
  if (code) return code;
  char *sum = malloc(bytes + 1);
  Want w = {.out = sum, .start = start, .bytes = bytes, .dtype = call.dtype, .op = call.reduce};
  code = hccl_exchange(c, call, in, use_reduce, &w);
  if (!code && keep) memcpy(out, sum, bytes);
  free(sum);
  return code;
}

int HcclAllReduce(void *in, void *out, uint64_t count, int dtype, int op, HcclCommunicator *c, void *stream) {
  (void)stream;
  size_t bytes = count * hccl_item_bytes(dtype);
  HcclCall call = {"HcclAllReduce", dtype, op, 0, count, bytes};
  return reduced(c, call, in, out, 0, bytes, 1);
}

int HcclReduce(void *in, void *out, uint64_t count, int dtype, int op, uint32_t root, HcclCommunicator *c, void *stream) {
  (void)stream;
  size_t bytes = count * hccl_item_bytes(dtype);
  HcclCall call = {"HcclReduce", dtype, op, (int)root, count, bytes};
  return reduced(c, call, in, out, 0, bytes, (int)root == c->rank);
}

int HcclReduceScatter(void *in, void *out, uint64_t count, int dtype, int op, HcclCommunicator *c, void *stream) {
  (void)stream;
  size_t bytes = count * hccl_item_bytes(dtype);
  HcclCall call = {"HcclReduceScatter", dtype, op, 0, count, bytes * (size_t)c->size};
  return reduced(c, call, in, out, bytes * (size_t)c->rank, bytes, 1);
}

int HcclReduceScatterV(void *in, const uint64_t *counts, const uint64_t *starts, void *out, uint64_t count, int dtype, int op,
                       HcclCommunicator *c, void *stream) {
  (void)stream;
  size_t item = hccl_item_bytes(dtype), total = 0;
  for (int i = 0; i < c->size; i++) {
    if ((starts[i] + counts[i]) * item > total) total = (starts[i] + counts[i]) * item;
  }
  HcclCall call = {"HcclReduceScatterV", dtype, op, 0, total / item, total};
  return reduced(c, call, in, out, starts[c->rank] * item, count * item, 1);
}

int HcclAllGather(void *in, void *out, uint64_t count, int dtype, HcclCommunicator *c, void *stream) {
  (void)stream;
  size_t bytes = count * hccl_item_bytes(dtype);
  char *all = malloc(bytes * (size_t)c->size + 1);
  Want w = {.out = all, .stride = bytes};
  HcclCall call = {"HcclAllGather", dtype, 0, 0, count, bytes};
  int code = hccl_exchange(c, call, in, use_gather, &w);
  if (!code) memcpy(out, all, bytes * (size_t)c->size);
  free(all);
  return code;
}

int HcclBroadcast(void *data, uint64_t count, int dtype, uint32_t root, HcclCommunicator *c, void *stream) {
  (void)stream;
  size_t bytes = count * hccl_item_bytes(dtype);
  int is_root = (int)root == c->rank;
  Want w = {.out = is_root ? NULL : data, .bytes = bytes, .root = (int)root};
  HcclCall call = {"HcclBroadcast", dtype, 0, (int)root, count, is_root ? bytes : 0};
  return hccl_exchange(c, call, data, use_root, &w);
}

int HcclScatter(void *in, void *out, uint64_t count, int dtype, uint32_t root, HcclCommunicator *c, void *stream) {
  (void)stream;
  size_t bytes = count * hccl_item_bytes(dtype);
  Want w = {.out = out, .start = bytes * (size_t)c->rank, .bytes = bytes, .root = (int)root};
  HcclCall call = {"HcclScatter", dtype, 0, (int)root, count, (int)root == c->rank ? bytes * (size_t)c->size : 0};
  return hccl_exchange(c, call, in, use_root, &w);
}

int HcclBarrier(HcclCommunicator *c, void *stream) {
  (void)stream;
  HcclCall call = {.name = "HcclBarrier"};
  return hccl_exchange(c, call, NULL, NULL, NULL);
}

// everybody's whole buffer, of unequal sizes

typedef struct {
  uint64_t size[HCCL_MAX_RANKS];
  char *data[HCCL_MAX_RANKS];
} Everything;

static void use_size(void *user, int rank, size_t offset, size_t bytes, const char *chunk) {
  (void)offset;
  memcpy(&((Everything *)user)->size[rank], chunk, bytes);
}

static void use_data(void *user, int rank, size_t offset, size_t bytes, const char *chunk) {
  memcpy(((Everything *)user)->data[rank] + offset, chunk, bytes);
}

static void release(HcclCommunicator *c, Everything *all) {
  for (int i = 0; i < c->size; i++) free(all->data[i]);
}

static int publish(HcclCommunicator *c, HcclCall call, const void *data, uint64_t bytes, Everything *all) {
  memset(all, 0, sizeof *all);
  call.bytes = sizeof bytes;
  int code = hccl_exchange(c, call, &bytes, use_size, all);
  for (int i = 0; !code && i < c->size; i++) all->data[i] = malloc(all->size[i] + 1);
  call.bytes = bytes;
  if (!code) code = hccl_exchange(c, call, data, use_data, all);
  if (code) release(c, all);
  return code;
}

int HcclAllGatherV(void *in, uint64_t count, char *out, const uint64_t *counts, const uint64_t *starts, int dtype, HcclCommunicator *c,
                   void *stream) {
  (void)stream;
  size_t item = hccl_item_bytes(dtype);
  HcclCall call = {.name = "HcclAllGatherV", .dtype = dtype, .count = UINT64_MAX};
  Everything all;
  int code = publish(c, call, in, count * item, &all);
  if (code) return code;
  for (int i = 0; i < c->size && !code; i++) {
    if (all.size[i] != counts[i] * item) code = sim_error(HCCL_E_PARA, "EI0005: HcclAllGatherV: rank %d sent %llu bytes, %llu expected.", i,
                                                          (unsigned long long)all.size[i], (unsigned long long)(counts[i] * item));
    else memcpy(out + starts[i] * item, all.data[i], all.size[i]);
  }
  release(c, &all);
  return code;
}

int HcclAlltoAll(const void *in, uint64_t count, int dtype, char *out, uint64_t out_count, int out_dtype, HcclCommunicator *c, void *stream) {
  (void)out_count, (void)out_dtype, (void)stream;
  size_t bytes = count * hccl_item_bytes(dtype);
  HcclCall call = {.name = "HcclAlltoAll", .dtype = dtype, .count = count};
  Everything all;
  int code = publish(c, call, in, bytes * (size_t)c->size, &all);
  if (code) return code;
  for (int i = 0; i < c->size; i++) memcpy(out + bytes * (size_t)i, all.data[i] + bytes * (size_t)c->rank, bytes);
  release(c, &all);
  return HCCL_OK;
}

int HcclAlltoAllV(const void *in, const uint64_t *counts, const uint64_t *starts, int dtype, char *out, const uint64_t *out_counts,
                  const uint64_t *out_starts, int out_dtype, HcclCommunicator *c, void *stream) {
  (void)stream;
  size_t item = hccl_item_bytes(dtype), out_item = hccl_item_bytes(out_dtype);
  uint64_t table[2 * HCCL_MAX_RANKS], bytes = 0;  // start and length of the part for each rank
  for (int i = 0; i < c->size; i++) {
    table[2 * i] = starts[i] * item;
    table[2 * i + 1] = counts[i] * item;
    if (table[2 * i] + table[2 * i + 1] > bytes) bytes = table[2 * i] + table[2 * i + 1];
  }
  HcclCall call = {.name = "HcclAlltoAllV", .dtype = dtype, .count = UINT64_MAX};
  Everything tables, all;
  int code = publish(c, call, table, sizeof(uint64_t) * 2 * (size_t)c->size, &tables);
  if (code) return code;
  code = publish(c, call, in, bytes, &all);
  if (code) return release(c, &tables), code;
  for (int i = 0; i < c->size && !code; i++) {
    const uint64_t *theirs = (const uint64_t *)tables.data[i] + 2 * c->rank;
    if (theirs[1] != out_counts[i] * out_item) {
      code = sim_error(HCCL_E_PARA, "EI0005: HcclAlltoAllV: rank %d sends %llu bytes to rank %d, which expects %llu.", i,
                       (unsigned long long)theirs[1], c->rank, (unsigned long long)(out_counts[i] * out_item));
    } else {
      memcpy(out + out_starts[i] * out_item, all.data[i] + theirs[0], theirs[1]);
    }
  }
  release(c, &tables);
  release(c, &all);
  return code;
}
