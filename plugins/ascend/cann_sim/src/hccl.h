// Inner parts of the simulated HCCL: several processes of one machine, over a shared file per communicator.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "sim.h"

enum { HCCL_OK = 0, HCCL_E_PARA = 1, HCCL_E_INTERNAL = 4, HCCL_E_NOT_SUPPORT = 5, HCCL_E_TIMEOUT = 9, HCCL_E_RUNTIME = 15 };
enum { HCCL_MAX_RANKS = 64, HCCL_CHUNK = 1 << 20 };

// What a rank says about the collective it has entered. All ranks must say the same, as on the real chip.
typedef struct {
  char name[24];
  int dtype, reduce, root;
  uint64_t count;  // elements; -1 where ranks may differ
  uint64_t bytes;  // that this rank publishes
} HcclCall;

typedef struct {
  volatile int32_t pid, device;  // device is physical
  volatile uint64_t round;       // last round that this rank has entered
  HcclCall call[2];              // by parity of the round
} HcclRank;

typedef struct {
  volatile uint32_t bell;    // futex that rings at every change
  volatile uint32_t joined;
  HcclRank rank[HCCL_MAX_RANKS];
  volatile uint32_t sent[HCCL_MAX_RANKS][HCCL_MAX_RANKS];  // messages from, to
} HcclControl;

typedef struct {
  char path[512];  // of the shared file; also the prefix of its messages
  int rank, size;
  uint64_t round;
  HcclControl *control;
  char *window;  // HCCL_CHUNK bytes per rank and parity
  size_t bytes;
  uint32_t received[HCCL_MAX_RANKS];
  uint32_t children;
} HcclCommunicator;

size_t hccl_item_bytes(int dtype);
// into[i] = into[i] <op> from[i]; only for what hccl_check_reduce accepts
void hccl_reduce(void *into, const void *from, size_t count, int dtype, int op);
int hccl_check_reduce(const char *name, int dtype, int op);

void hccl_ring(HcclCommunicator *c);
// Waits until ready(c, argument) is true; HCCL_E_TIMEOUT after `limit` seconds with the ranks that are missing.
int hccl_wait(HcclCommunicator *c, int (*ready)(HcclCommunicator *, uint64_t), uint64_t argument, double limit, const char *what);
double hccl_exec_timeout(void);

// One collective: every rank publishes `bytes` bytes of `data`, chunk by chunk; `use` gets each chunk of each rank.
typedef void (*HcclUse)(void *user, int rank, size_t offset, size_t bytes, const char *chunk);
int hccl_exchange(HcclCommunicator *c, HcclCall call, const void *data, HcclUse use, void *user);
void hccl_transfer_time(size_t bytes);  // sleeps as long as a slow link would take
