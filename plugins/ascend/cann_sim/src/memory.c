// Simulated AscendCL, memory: device memory is host memory that counts against the capacity of a device.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "sim.h"

enum { KIND_HOST = 0, KIND_DEVICE = 1, KIND_UNREGISTERED = 2 };  // aclrtMemLocationType

typedef struct Block {
  void *address;
  size_t bytes;
  int device;  // physical; -1 for pinned host memory
  struct Block *next;
} Block;

static Block *table[4096];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static Block **bucket(const void *address) { return &table[((uintptr_t)address >> 9) % 4096]; }

static void remember(void *address, size_t bytes, int device) {
  Block *b = malloc(sizeof *b);
  *b = (Block){address, bytes, device, NULL};
  pthread_mutex_lock(&lock);
  b->next = *bucket(address);
  *bucket(address) = b;
  pthread_mutex_unlock(&lock);
}

static int forget(void *address, Block *out) {
  int found = 0;
  pthread_mutex_lock(&lock);
  for (Block **at = bucket(address); *at; at = &(*at)->next) {
    if ((*at)->address != address) continue;
    Block *b = *at;
    *at = b->next;
    *out = *b;
    free(b);
    found = 1;
    break;
  }
  pthread_mutex_unlock(&lock);
  return found;
}

static int reserve(size_t bytes, int device) {
  int code = sim_gate(SIM_ALLOCATION, "aclrtMalloc");
  if (code) return code;
  uint64_t used = sim_device_used(device);
  if (used + bytes > sim_capacity()) {
    return sim_error(ACL_OUT_OF_MEMORY, "EL0004: Failed to allocate memory. Device %d: %zu bytes asked, %llu of %zu used.", device,
                     bytes, (unsigned long long)used, sim_capacity());
  }
  __sync_fetch_and_add(&sim_process()->used[device], bytes);
  return ACL_OK;
}

static void give_back(size_t bytes, int device) { __sync_fetch_and_sub(&sim_process()->used[device], bytes); }

int aclrtMalloc(void **out, size_t bytes, int policy) {
  (void)policy;
  sim_trace(__func__);
  int device = sim_physical_device(sim_current_device());
  *out = NULL;
  int code = reserve(bytes, device);
  if (code) return code;
  if (posix_memalign(out, 512, bytes ? bytes : 512)) {
    give_back(bytes, device);
    return sim_error(ACL_OUT_OF_MEMORY, "EL0004: Failed to allocate memory. The host of the simulation has no %zu bytes.", bytes);
  }
  remember(*out, bytes, device);
  return ACL_OK;
}

int aclrtMallocAlign32(void **out, size_t bytes, int policy) { return aclrtMalloc(out, bytes, policy); }

int aclrtFree(void *address) {
  sim_trace(__func__);
  Block b;
  if (!forget(address, &b) || b.device < 0) return sim_error(ACL_INVALID_PARAM, "aclrtFree: %p is no device memory", address);
  give_back(b.bytes, b.device);
  free(address);
  return ACL_OK;
}

int aclrtMallocHost(void **out, size_t bytes) {
  sim_trace(__func__);
  int code = sim_gate(SIM_CALL, __func__);
  if (code) return code;
  if (posix_memalign(out, 4096, bytes ? bytes : 1)) return ACL_OUT_OF_MEMORY;
  remember(*out, bytes, -1);
  return ACL_OK;
}

int aclrtMallocHostWithCfg(void **out, uint64_t bytes, void *config) {
  (void)config;
  return aclrtMallocHost(out, bytes);
}

int aclrtFreeHost(void *address) {
  sim_trace(__func__);
  Block b;
  if (!forget(address, &b)) return sim_error(ACL_INVALID_PARAM, "aclrtFreeHost: %p is no pinned memory", address);
  free(address);
  return ACL_OK;
}

int aclrtHostRegister(void *address, uint64_t bytes, int type, void **device_address) {
  (void)type;
  remember(address, bytes, -1);
  if (device_address) *device_address = address;
  return ACL_OK;
}

int aclrtHostUnregister(void *address) {
  Block b;
  return forget(address, &b) ? ACL_OK : ACL_INVALID_PARAM;
}

int aclrtPointerGetAttributes(const void *address, uint32_t *attributes) {
  int kind = KIND_UNREGISTERED, device = 0;
  pthread_mutex_lock(&lock);
  for (Block *b = *bucket(address); b; b = b->next) {
    if (b->address != address) continue;
    kind = b->device < 0 ? KIND_HOST : KIND_DEVICE;
    device = b->device < 0 ? 0 : b->device;
  }
  pthread_mutex_unlock(&lock);
  memset(attributes, 0, 64);
  attributes[0] = (uint32_t)device;
  attributes[1] = (uint32_t)kind;
  return ACL_OK;
}

int aclrtGetMemInfo(int kind, size_t *available, size_t *total) {
  (void)kind;
  uint64_t used = sim_device_used(sim_physical_device(sim_current_device()));
  *total = sim_capacity();
  *available = used < *total ? *total - used : 0;
  return ACL_OK;
}

// copies

int aclrtMemcpy(void *to, size_t room, const void *from, size_t bytes, int kind) {
  (void)kind;
  sim_trace(__func__);
  int code = sim_gate(SIM_CALL, __func__);
  if (code) return code;
  if (bytes > room) return sim_error(ACL_INVALID_PARAM, "aclrtMemcpy: %zu bytes into %zu", bytes, room);
  memmove(to, from, bytes);
  return ACL_OK;
}

int aclrtMemcpyAsync(void *to, size_t room, const void *from, size_t bytes, int kind, void *stream) {
  (void)stream;
  return aclrtMemcpy(to, room, from, bytes, kind);
}

int aclrtMemcpyAsyncWithCondition(void *to, size_t room, const void *from, size_t bytes, int kind, void *stream) {
  return aclrtMemcpyAsync(to, room, from, bytes, kind, stream);
}

int aclrtMemcpyBatch(void **to, size_t *room, void **from, size_t *bytes, size_t n, void *attributes, size_t *indices,
                     size_t attribute_count, size_t *failed) {
  (void)attributes, (void)indices, (void)attribute_count, (void)failed;
  for (size_t i = 0; i < n; i++) {
    int code = aclrtMemcpy(to[i], room[i], from[i], bytes[i], 0);
    if (code) return code;
  }
  return ACL_OK;
}

int aclrtMemcpyBatchAsync(void **to, size_t *room, void **from, size_t *bytes, size_t n, void *attributes, size_t *indices,
                          size_t attribute_count, size_t *failed, void *stream) {
  (void)stream;
  return aclrtMemcpyBatch(to, room, from, bytes, n, attributes, indices, attribute_count, failed);
}

int aclrtMemset(void *to, size_t room, int value, size_t bytes) {
  int code = sim_gate(SIM_CALL, __func__);
  if (code) return code;
  if (bytes > room) return sim_error(ACL_INVALID_PARAM, "aclrtMemset: %zu bytes into %zu", bytes, room);
  memset(to, value, bytes);
  return ACL_OK;
}

int aclrtMemsetAsync(void *to, size_t room, int value, size_t bytes, void *stream) {
  (void)stream;
  return aclrtMemset(to, room, value, bytes);
}

// virtual memory (expandable segments)

int aclrtReserveMemAddress(void **out, size_t bytes, size_t alignment, void *wanted, uint64_t flags) {
  (void)alignment, (void)wanted, (void)flags;
  *out = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (*out == MAP_FAILED) return sim_error(ACL_OUT_OF_MEMORY, "EL0004: no %zu bytes of addresses", bytes);
  remember(*out, bytes, sim_physical_device(sim_current_device()));
  return ACL_OK;
}

int aclrtReleaseMemAddress(void *address) {
  Block b;
  if (!forget(address, &b)) return ACL_INVALID_PARAM;
  munmap(address, b.bytes);
  return ACL_OK;
}

typedef struct {
  size_t bytes;
  int device;
} Physical;

int aclrtMallocPhysical(Physical **out, size_t bytes, const void *properties, uint64_t flags) {
  (void)properties, (void)flags;
  int device = sim_physical_device(sim_current_device());
  int code = reserve(bytes, device);
  if (code) return code;
  *out = malloc(sizeof **out);
  **out = (Physical){bytes, device};
  return ACL_OK;
}

int aclrtFreePhysical(Physical *physical) {
  give_back(physical->bytes, physical->device);
  free(physical);
  return ACL_OK;
}

int aclrtMapMem(void *address, size_t bytes, size_t offset, Physical *physical, uint64_t flags) {
  (void)offset, (void)physical, (void)flags;
  return mprotect(address, bytes, PROT_READ | PROT_WRITE) ? ACL_INVALID_PARAM : ACL_OK;
}

int aclrtUnmapMem(void *address) {
  (void)address;  // the pages go with aclrtReleaseMemAddress
  return ACL_OK;
}
