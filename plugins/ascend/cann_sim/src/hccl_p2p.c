// Simulated HCCL: send and receive. A message is a file of its own, so that a send never waits and opposed sends cannot
// lock each other. (On the chip a send may wait for its receive.)
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "hccl.h"

typedef struct {
  uint64_t count;
  int32_t dtype, unused;
} Header;

static void message_path(const HcclCommunicator *c, int from, int to, uint32_t number, char path[600]) {
  snprintf(path, 600, "%s.%d-%d-%u", c->path, from, to, number);
}

static int transfer(int fd, char *data, size_t bytes, int writing) {
  while (bytes) {
    ssize_t n = writing ? write(fd, data, bytes) : read(fd, data, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return 0;
    data += n, bytes -= (size_t)n;
  }
  return 1;
}

static int put(HcclCommunicator *c, void *data, uint64_t count, int dtype, int to) {
  if (sim_gate(SIM_COLLECTIVE, "HcclSend")) return HCCL_E_RUNTIME;
  char path[600];
  message_path(c, c->rank, to, c->control->sent[c->rank][to], path);
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  Header head = {count, dtype, 0};
  size_t bytes = count * hccl_item_bytes(dtype);
  int fine = fd >= 0 && transfer(fd, (char *)&head, sizeof head, 1) && transfer(fd, data, bytes, 1);
  if (fd >= 0) close(fd);
  if (!fine) return sim_error(HCCL_E_INTERNAL, "EI9999: cannot write %s: %s", path, strerror(errno));
  __sync_fetch_and_add(&c->control->sent[c->rank][to], 1);
  hccl_ring(c);
  hccl_transfer_time(bytes);
  return HCCL_OK;
}

static int has_message(HcclCommunicator *c, uint64_t from) { return c->control->sent[from][c->rank] > c->received[from]; }

static int get(HcclCommunicator *c, void *data, uint64_t count, int dtype, int from) {
  if (sim_gate(SIM_COLLECTIVE, "HcclRecv")) return HCCL_E_RUNTIME;
  int code = hccl_wait(c, has_message, (uint64_t)from, hccl_exec_timeout(), "HcclRecv");
  if (code) return code;
  char path[600];
  message_path(c, from, c->rank, c->received[from]++, path);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  unlink(path);
  Header head = {0};
  if (fd < 0 || !transfer(fd, (char *)&head, sizeof head, 0)) return sim_error(HCCL_E_INTERNAL, "EI9999: cannot read %s", path);
  if (head.count != count || head.dtype != dtype) {
    code = sim_error(HCCL_E_PARA, "EI0005: HcclRecv: rank %d sent %llu elements of type %d, rank %d expects %llu of type %d.", from,
                     (unsigned long long)head.count, head.dtype, c->rank, (unsigned long long)count, dtype);
  } else if (!transfer(fd, data, count * hccl_item_bytes(dtype), 0)) {
    code = sim_error(HCCL_E_INTERNAL, "EI9999: %s is too short", path);
  }
  close(fd);
  return code;
}

typedef struct {
  int type;  // 0: send, 1: receive
  void *data;
  uint64_t count;
  int dtype;
  uint32_t remote;
} Item;

int HcclBatchSendRecv(Item *items, uint32_t n, HcclCommunicator *c, void *stream) {
  (void)stream;
  for (int type = 0; type < 2; type++) {
    for (uint32_t i = 0; i < n; i++) {
      if (items[i].type != type) continue;
      int code = (type ? get : put)(c, items[i].data, items[i].count, items[i].dtype, (int)items[i].remote);
      if (code) return code;
    }
  }
  return HCCL_OK;
}

// Inside HcclGroupStart/End transfers are collected, so that a receive does not stand before the sends of its group.
static __thread int depth;
static __thread struct {
  HcclCommunicator *comm;
  Item item;
} group[1024];
static __thread uint32_t grouped;

static int submit(HcclCommunicator *c, Item item, void *stream) {
  if (!depth) return HcclBatchSendRecv(&item, 1, c, stream);
  if (grouped == sizeof group / sizeof *group) return sim_error(HCCL_E_NOT_SUPPORT, "EI0003: more than %u transfers in a group.", grouped);
  group[grouped].comm = c;
  group[grouped++].item = item;
  return HCCL_OK;
}

int HcclSend(void *data, uint64_t count, int dtype, uint32_t to, HcclCommunicator *c, void *stream) {
  return submit(c, (Item){0, data, count, dtype, to}, stream);
}

int HcclRecv(void *data, uint64_t count, int dtype, uint32_t from, HcclCommunicator *c, void *stream) {
  return submit(c, (Item){1, data, count, dtype, from}, stream);
}

int HcclGroupStart(void) { return depth++, HCCL_OK; }

int HcclGroupEnd(void) {
  if (--depth > 0) return HCCL_OK;
  int code = HCCL_OK;
  for (int type = 0; type < 2; type++) {
    for (uint32_t i = 0; i < grouped && !code; i++) {
      if (group[i].item.type == type) code = HcclBatchSendRecv(&group[i].item, 1, group[i].comm, NULL);
    }
  }
  grouped = 0;
  return code;
}
