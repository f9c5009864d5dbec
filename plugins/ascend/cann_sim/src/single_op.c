// Simulated AscendCL, single operators: the few that torch_npu's C++ code calls without passing torch's dispatcher.
// Every other name is an error that says it; answering success would leave the output uninitialised.
#include <stdlib.h>
#include <string.h>

#include "sim.h"

typedef struct {
  int dtype, dims, format, placement;
  int64_t size[16];
} Desc;

typedef struct {
  char *data;
  size_t bytes;
} Buffer;

Desc *aclCreateTensorDesc(int dtype, int dims, const int64_t *size, int format) {
  Desc *d = calloc(1, sizeof *d);
  d->dtype = dtype, d->dims = dims > 16 ? 16 : dims, d->format = format;
  for (int i = 0; i < d->dims; i++) d->size[i] = size[i];
  return d;
}

void aclDestroyTensorDesc(Desc *d) { free(d); }
int aclGetTensorDescType(Desc *d) { return d->dtype; }
int aclGetTensorDescFormat(Desc *d) { return d->format; }
size_t aclGetTensorDescNumDims(Desc *d) { return (size_t)d->dims; }
int aclGetTensorDescDimV2(Desc *d, size_t i, int64_t *size) { return *size = d->size[i], ACL_OK; }
int aclSetTensorPlaceMent(Desc *d, int placement) { return d->placement = placement, ACL_OK; }

Buffer *aclCreateDataBuffer(void *data, size_t bytes) {
  Buffer *b = malloc(sizeof *b);
  *b = (Buffer){data, bytes};
  return b;
}

int aclDestroyDataBuffer(Buffer *b) { return free(b), ACL_OK; }
void *aclopCreateAttr(void) { return malloc(8); }
void aclopDestroyAttr(void *attributes) { free(attributes); }

// aclDataType
enum { F32 = 0, F16 = 1, I8 = 2, I32 = 3, U8 = 4, I16 = 6, I64 = 9, F64 = 11, BOOL = 12, BF16 = 27 };

static size_t item_bytes(int dtype) {
  switch (dtype) {
    case I8: case U8: case BOOL: return 1;
    case F16: case BF16: case I16: return 2;
    case F32: case I32: return 4;
    case I64: case F64: return 8;
  }
  return 0;
}

static double load(const char *p, size_t i, int dtype) {
  p += i * item_bytes(dtype);
  switch (dtype) {
    case F32: { float v; return memcpy(&v, p, 4), v; }
    case F16: { _Float16 v; return memcpy(&v, p, 2), (double)v; }
    case BF16: { uint32_t bits = 0; memcpy((char *)&bits + 2, p, 2); float v; return memcpy(&v, &bits, 4), v; }
    case I8: return *(const int8_t *)p;
    case U8: case BOOL: return *(const uint8_t *)p;
    case I16: { int16_t v; return memcpy(&v, p, 2), v; }
    case I32: { int32_t v; return memcpy(&v, p, 4), v; }
    case I64: { int64_t v; return memcpy(&v, p, 8), (double)v; }
    default: { double v; return memcpy(&v, p, 8), v; }
  }
}

static void store(char *p, size_t i, int dtype, double x) {
  p += i * item_bytes(dtype);
  switch (dtype) {
    case F32: { float v = (float)x; memcpy(p, &v, 4); break; }
    case F16: { _Float16 v = (_Float16)x; memcpy(p, &v, 2); break; }
    case BF16: {
      float v = (float)x;
      uint32_t bits;
      memcpy(&bits, &v, 4);
      bits = (bits & 0x7fffffff) > 0x7f800000 ? 0x7fc00000 : bits + 0x7fff + ((bits >> 16) & 1);
      memcpy(p, (char *)&bits + 2, 2);
      break;
    }
    case I8: *(int8_t *)p = (int8_t)x; break;
    case U8: *(uint8_t *)p = (uint8_t)x; break;
    case BOOL: *(uint8_t *)p = x != 0; break;
    case I16: { int16_t v = (int16_t)x; memcpy(p, &v, 2); break; }
    case I32: { int32_t v = (int32_t)x; memcpy(p, &v, 4); break; }
    case I64: { int64_t v = (int64_t)x; memcpy(p, &v, 8); break; }
    default: memcpy(p, &x, 8);
  }
}

static size_t count(const Desc *d) {
  size_t n = 1;
  for (int i = 0; i < d->dims; i++) n *= (size_t)d->size[i];
  return n;
}

static int cast(Desc *from, Buffer *in, Desc *to, Buffer *out) {
  if (!item_bytes(from->dtype) || !item_bytes(to->dtype)) return 0;
  size_t n = count(to);
  for (size_t i = 0; i < n; i++) store(out->data, i, to->dtype, load(in->data, i, from->dtype));
  return 1;
}

static int fill(Desc *value, Buffer *in, Desc *to, Buffer *out) {
  size_t bytes = item_bytes(to->dtype);
  if (!bytes || value->dtype != to->dtype) return 0;
  for (size_t i = 0, n = count(to); i < n; i++) memcpy(out->data + i * bytes, in->data, bytes);
  return 1;
}

static int pad(int inputs, Desc **from, Buffer **in, Desc *to, Buffer *out) {
  size_t bytes = item_bytes(from[0]->dtype);
  if (!bytes || from[0]->dims != to->dims) return 0;
  if (inputs >= 3 && from[2]->dtype == to->dtype) {
    fill(from[2], in[2], to, out);
  } else {
    memset(out->data, 0, count(to) * bytes);
  }
  for (size_t i = 0, n = count(from[0]); i < n; i++) {
    size_t rest = i, at = 0, stride = 1;
    for (int d = to->dims - 1; d >= 0; d--) {
      size_t index = rest % (size_t)from[0]->size[d] + (size_t)load(in[1]->data, 2 * (size_t)d, from[1]->dtype);
      rest /= (size_t)from[0]->size[d];
      if (index >= (size_t)to->size[d]) return 0;  // negative padding
      at += index * stride;
      stride *= (size_t)to->size[d];
    }
    memcpy(out->data + at * bytes, in[0]->data + i * bytes, bytes);
  }
  return 1;
}

int aclopCompileAndExecute(const char *name, int inputs, Desc **from, Buffer **in, int outputs, Desc **to, Buffer **out) {
  sim_trace(name);
  int code = sim_gate(SIM_OPERATOR, name);
  if (code) return code;
  int done = 0;
  if (outputs < 1) done = 0;
  else if (!strcmp(name, "Cast") && inputs >= 1) done = cast(from[0], in[0], to[0], out[0]);
  else if (!strcmp(name, "Fill") && inputs >= 2) done = fill(from[1], in[1], to[0], out[0]);
  else if (!strcmp(name, "ZerosLike")) done = !!memset(out[0]->data, 0, count(to[0]) * item_bytes(to[0]->dtype));
  else if ((!strcmp(name, "Pad") || !strcmp(name, "PadV3")) && inputs >= 2) done = pad(inputs, from, in, to[0], out[0]);
  return done ? ACL_OK : sim_error(ACL_OP_FAILED, "EZ9999: the simulated CANN has no operator %s for these inputs.", name);
}

int aclopCompileAndExecuteV2(const char *name, int inputs, Desc **from, Buffer **in, int outputs, Desc **to, Buffer **out) {
  return aclopCompileAndExecute(name, inputs, from, in, outputs, to, out);
}
