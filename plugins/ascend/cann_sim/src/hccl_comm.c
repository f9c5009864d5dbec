// Simulated HCCL: communicators, rounds in which all ranks meet, and the comparison of what they came for.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "hccl.h"

static double seconds(const char *variable, double standard) {
  const char *text = getenv(variable);
  return text && *text ? atof(text) : standard;
}

double hccl_exec_timeout(void) { return seconds("HCCL_EXEC_TIMEOUT", 1836); }

void hccl_ring(HcclCommunicator *c) {
  __sync_fetch_and_add(&c->control->bell, 1);
  syscall(SYS_futex, &c->control->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static int timed_out(HcclCommunicator *c, double limit, const char *what) {
  char late[256] = "";
  for (int i = 0; i < c->size; i++) {
    HcclRank *r = &c->control->rank[i];
    if (i == c->rank || (r->pid && r->round >= c->round)) continue;
    const char *why = !r->pid ? "never joined" : sim_process_alive(r->pid) ? "alive, not here" : "its process is gone";
    size_t n = strlen(late);
    snprintf(late + n, sizeof late - n, "%srank %d (%s)", n ? ", " : "", i, why);
  }
  return sim_error(HCCL_E_TIMEOUT, "EI0002: The wait execution of the Notify register times out. %s: rank %d of %d waited %.0f s for %s.",
                   what, c->rank, c->size, limit, *late ? late : "a message");
}

int hccl_wait(HcclCommunicator *c, int (*ready)(HcclCommunicator *, uint64_t), uint64_t argument, double limit, const char *what) {
  double start = sim_now();
  for (;;) {
    uint32_t bell = c->control->bell;
    if (ready(c, argument)) return HCCL_OK;
    struct timespec slice = {0, 50 * 1000 * 1000};
    syscall(SYS_futex, &c->control->bell, FUTEX_WAIT, bell, &slice, NULL, 0);
    if (sim_now() - start > limit && !ready(c, argument)) return timed_out(c, limit, what);
  }
}

static int all_entered(HcclCommunicator *c, uint64_t round) {
  for (int i = 0; i < c->size; i++) {
    if (c->control->rank[i].round < round) return 0;
  }
  return 1;
}

static int differs(const HcclCall *a, const HcclCall *b, const char **what, long *mine, long *theirs) {
  struct {
    const char *name;
    long a, b;
  } field[] = {{"data type", a->dtype, b->dtype},
               {"reduce operation", a->reduce, b->reduce},
               {"root", a->root, b->root},
               {"count", (long)a->count, (long)b->count}};
  for (size_t i = 0; i < sizeof field / sizeof *field; i++) {
    if (field[i].a == field[i].b) continue;
    *what = field[i].name, *mine = field[i].a, *theirs = field[i].b;
    return 1;
  }
  return 0;
}

static int compare(HcclCommunicator *c, const HcclCall *mine, int parity) {
  for (int i = 0; i < c->size; i++) {
    const HcclCall *other = &c->control->rank[i].call[parity];
    const char *what;
    long a, b;
    if (strcmp(mine->name, other->name)) {
      return sim_error(HCCL_E_PARA, "EI0005: The arguments for collective communication are inconsistent between ranks. "
                       "Rank %d called %s, rank %d called %s.", c->rank, mine->name, i, other->name);
    }
    if (differs(mine, other, &what, &a, &b)) {
      return sim_error(HCCL_E_PARA, "EI0005: The arguments for collective communication are inconsistent between ranks. "
                       "%s: %s is %ld on rank %d and %ld on rank %d.", mine->name, what, a, c->rank, b, i);
    }
  }
  return HCCL_OK;
}

// Two windows per rank take turns: whoever writes round k+2 has seen everybody enter round k+1, thus leave round k.
static int enter(HcclCommunicator *c, const HcclCall *call, const char *chunk, size_t bytes) {
  int parity = (int)(++c->round & 1);
  HcclRank *self = &c->control->rank[c->rank];
  self->call[parity] = *call;
  if (bytes) memcpy(c->window + ((size_t)c->rank * 2 + parity) * HCCL_CHUNK, chunk, bytes);
  __sync_synchronize();
  self->round = c->round;
  hccl_ring(c);
  int code = hccl_wait(c, all_entered, c->round, hccl_exec_timeout(), call->name);
  return code ? code : compare(c, call, parity);
}

int hccl_exchange(HcclCommunicator *c, HcclCall call, const void *data, HcclUse use, void *user) {
  sim_trace(call.name);
  if (sim_gate(SIM_COLLECTIVE, call.name)) return HCCL_E_RUNTIME;
  size_t longest = 0, bytes[HCCL_MAX_RANKS];
  for (size_t offset = 0; offset == 0 || offset < longest; offset += HCCL_CHUNK) {
    size_t left = offset < call.bytes ? call.bytes - offset : 0;
    int code = enter(c, &call, (const char *)data + offset, left < HCCL_CHUNK ? left : HCCL_CHUNK);
    if (code) return code;
    int parity = (int)(c->round & 1);
    for (int r = 0; offset == 0 && r < c->size; r++) {
      bytes[r] = c->control->rank[r].call[parity].bytes;
      if (bytes[r] > longest) longest = bytes[r];
    }
    for (int r = 0; use && r < c->size; r++) {
      if (offset >= bytes[r]) continue;
      size_t n = bytes[r] - offset < HCCL_CHUNK ? bytes[r] - offset : HCCL_CHUNK;
      use(user, r, offset, n, c->window + ((size_t)r * 2 + parity) * HCCL_CHUNK);
    }
  }
  hccl_transfer_time(longest);
  return HCCL_OK;
}

void hccl_transfer_time(size_t bytes) {
  double speed = sim_link_bytes_per_s();
  if (speed > 0) usleep((useconds_t)(1e6 * (double)bytes / speed));
}

// communicators

static int all_joined(HcclCommunicator *c, uint64_t size) { return c->control->joined >= size; }

static int shared_device(HcclCommunicator *c) {
  for (int i = 0; i < c->size; i++) {
    for (int j = 0; j < i; j++) {
      HcclControl *s = c->control;
      if (s->rank[i].device != s->rank[j].device) continue;
      return sim_error(HCCL_E_PARA, "EI0004: The ranktable or rank information is invalid. Reason: rank %d and rank %d use the same device %d.",
                       j, i, s->rank[i].device);
    }
  }
  return HCCL_OK;
}

static int join(const char *path, uint32_t size, uint32_t rank, HcclCommunicator **out) {
  if (sim_gate(SIM_CALL, "HcclCommInit")) return HCCL_E_RUNTIME;
  if (size > HCCL_MAX_RANKS || rank >= size) return sim_error(HCCL_E_PARA, "EI0003: rank %u of %u", rank, size);
  HcclCommunicator *c = calloc(1, sizeof *c);
  snprintf(c->path, sizeof c->path, "%s", path);
  c->rank = (int)rank, c->size = (int)size;
  size_t head = (sizeof(HcclControl) + 4095) & ~(size_t)4095;
  c->bytes = head + (size_t)size * 2 * HCCL_CHUNK;
  int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, (off_t)c->bytes)) return sim_error(HCCL_E_INTERNAL, "EI9999: %s: %s", path, strerror(errno));
  void *memory = mmap(NULL, c->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) return sim_error(HCCL_E_INTERNAL, "EI9999: %s: %s", path, strerror(errno));
  c->control = memory;
  c->window = (char *)memory + head;
  HcclRank *self = &c->control->rank[rank];
  self->device = sim_physical_device(sim_current_device());
  self->pid = getpid();
  __sync_fetch_and_add(&c->control->joined, 1);
  hccl_ring(c);
  double limit = seconds("HCCL_CONNECT_TIMEOUT", 120);
  if (hccl_wait(c, all_joined, size, limit, "HcclCommInit")) {
    return sim_error(HCCL_E_TIMEOUT, "EI0006: Getting socket times out. %u of %u ranks joined the communicator within %.0f s.",
                     c->control->joined, size, limit);
  }
  HcclCall call = {.name = "HcclCommInit", .count = size};
  int code = enter(c, &call, NULL, 0);
  if (rank == 0) unlink(path);
  if (!code) code = shared_device(c);
  if (!code) *out = c;
  return code;
}

int HcclGetRootInfo(char *info) {
  static int last;
  const char *session = getenv("CANN_SIM_SESSION");
  if (!session) return sim_error(HCCL_E_INTERNAL, "EI9999: CANN_SIM_SESSION is not set; start through vla_backend_ascend.cann_sim.");
  memset(info, 0, 4108);
  snprintf(info, 4108, "%s/hccl-%d-%d", session, getpid(), __sync_fetch_and_add(&last, 1));
  return HCCL_OK;
}

int HcclCommInitRootInfo(uint32_t size, const char *info, uint32_t rank, HcclCommunicator **out) { return join(info, size, rank, out); }

int HcclCommInitRootInfoConfig(uint32_t size, const char *info, uint32_t rank, const void *config, HcclCommunicator **out) {
  (void)config;
  return join(info, size, rank, out);
}

int HcclCreateSubCommConfig(HcclCommunicator **parent, uint32_t size, uint32_t *ranks, uint64_t id, uint32_t rank, void *config,
                            HcclCommunicator **out) {
  (void)config;
  *out = NULL;
  if (!ranks) return HCCL_OK;  // this rank is not in it
  char path[600];
  snprintf(path, sizeof path, "%.480s-%llu-%u", (*parent)->path, (unsigned long long)id, ranks[0]);
  return join(path, size, rank, out);
}

int HcclCommInitClusterInfoConfig(const char *info, uint32_t rank, void *config, HcclCommunicator **out) {
  (void)info, (void)rank, (void)config, (void)out;
  return sim_error(HCCL_E_NOT_SUPPORT, "A rank table file is not simulated.");
}

int HcclCommInitAll(uint32_t devices, int32_t *ids, HcclCommunicator **out) {
  (void)devices, (void)ids, (void)out;
  return sim_error(HCCL_E_NOT_SUPPORT, "Several devices in one process are not simulated.");
}

int HcclCommDestroy(HcclCommunicator *c) {
  if (!c) return HCCL_OK;
  munmap(c->control, c->bytes);
  free(c);
  return HCCL_OK;
}

int HcclGetCommName(HcclCommunicator *c, char *name) {
  const char *base = strrchr(c->path, '/');
  snprintf(name, 128, "%.127s", base ? base + 1 : c->path);
  return HCCL_OK;
}

int HcclGetRankSize(HcclCommunicator *c, uint32_t *size) { return *size = (uint32_t)c->size, HCCL_OK; }
int HcclGetRankId(HcclCommunicator *c, uint32_t *rank) { return *rank = (uint32_t)c->rank, HCCL_OK; }
int HcclGetCommAsyncError(HcclCommunicator *c, int *error) { return (void)c, *error = 0, HCCL_OK; }
int HcclSetConfig(int config, int value) { return (void)config, (void)value, HCCL_OK; }
uint32_t HcclGetCommConfigCapability(void) { return 3; }

const char *HcclGetErrorString(int code) {
  static __thread char text[32];
  snprintf(text, sizeof text, "hccl error %d", code);
  return text;
}
