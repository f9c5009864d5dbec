// The simulated machine: devices, processes on them, who uses how much memory, and error texts.
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "sim.h"

static SimMachine *machine;
static SimProcess *process;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static __thread char error_text[1024];

static void open_machine(void) {
  const char *session = getenv("CANN_SIM_SESSION");
  char path[4096];
  int fd = -1;
  if (session && *session) {
    snprintf(path, sizeof path, "%s/machine", session);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0 && ftruncate(fd, sizeof(SimMachine))) close(fd), fd = -1;
  }
  int flags = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  machine = mmap(NULL, sizeof(SimMachine), PROT_READ | PROT_WRITE, flags, fd, 0);
  if (fd >= 0) close(fd);
  if (machine == MAP_FAILED) {
    fprintf(stderr, "simulated CANN: cannot map its state in %s: %s\n", session ? session : "memory", strerror(errno));
    abort();
  }
  int self = getpid();
  for (int i = 0; i < SIM_MAX_PROCESSES && !process; i++) {
    SimProcess *slot = &machine->process[i];
    int owner = slot->pid;
    if (owner && owner != self && sim_process_alive(owner)) continue;
    if (!__sync_bool_compare_and_swap(&slot->pid, owner, self)) continue;
    memset((void *)slot->used, 0, sizeof slot->used);
    process = slot;
  }
  if (!process) {
    fprintf(stderr, "simulated CANN: more than %d processes use it\n", SIM_MAX_PROCESSES);
    abort();
  }
}

SimMachine *sim_machine(void) {
  pthread_once(&once, open_machine);
  return machine;
}

SimProcess *sim_process(void) {
  sim_machine();
  return process;
}

int sim_process_alive(int pid) {
  char path[64], line[512];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  FILE *f = fopen(path, "r");
  if (!f) return 0;
  size_t n = fread(line, 1, sizeof line - 1, f);
  fclose(f);
  line[n] = 0;
  char *state = strrchr(line, ')');  // the command name before it may hold anything
  return state && state[1] && state[2] != 'Z' && state[2] != 'X';
}

static int real_device_count(void) {
  const char *text = getenv("CANN_SIM_DEVICES");
  int n = text ? atoi(text) : 1;
  return n < 0 ? 0 : n > SIM_MAX_DEVICES ? SIM_MAX_DEVICES : n;
}

// CANN stops at the first character that is neither digit nor comma and at the first id that does not exist, and shows
// no device at all unless the ids ascend.
static int visible_devices(int ids[SIM_MAX_DEVICES]) {
  int real = real_device_count(), n = 0;
  const char *text = getenv("ASCEND_RT_VISIBLE_DEVICES");
  if (!text) {
    for (; n < real; n++) ids[n] = n;
    return n;
  }
  while (*text && n < SIM_MAX_DEVICES) {
    if (!isdigit((unsigned char)*text)) break;
    char *end;
    long id = strtol(text, &end, 10);
    if (id >= real) break;
    if (n && id <= ids[n - 1]) return 0;
    ids[n++] = (int)id;
    if (*end != ',') break;
    text = end + 1;
  }
  return n;
}

int sim_device_count(void) {
  int ids[SIM_MAX_DEVICES];
  return visible_devices(ids);
}

int sim_physical_device(int id) {
  int ids[SIM_MAX_DEVICES];
  int n = visible_devices(ids);
  return id >= 0 && id < n ? ids[id] : 0;
}

size_t sim_capacity(void) {
  const char *text = getenv("CANN_SIM_MEMORY");
  return text ? strtoull(text, NULL, 10) : (size_t)64 << 30;
}

uint64_t sim_device_used(int physical) {
  SimMachine *m = sim_machine();
  uint64_t total = 0;
  for (int i = 0; i < SIM_MAX_PROCESSES; i++) {
    SimProcess *p = &m->process[i];
    uint64_t used = p->used[physical];
    if (p->pid && used && (p == process || sim_process_alive(p->pid))) total += used;
  }
  return total;
}

int sim_error(int code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(error_text, sizeof error_text, format, args);
  va_end(args);
  return code;
}

const char *sim_error_text(void) { return error_text; }

void sim_trace(const char *what) {
  static int on = -1;
  if (on < 0) on = getenv("CANN_SIM_TRACE") != NULL;
  if (on) fprintf(stderr, "[simulated CANN %d] %s\n", getpid(), what);
}

double sim_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

const char *aclGetRecentErrMsg(void) {
  static __thread char out[sizeof error_text];
  memcpy(out, error_text, sizeof out);
  error_text[0] = 0;
  return out[0] ? out : NULL;
}
