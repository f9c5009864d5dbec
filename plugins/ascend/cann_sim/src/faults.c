// The gate before every use of a device: fork rule and fault injection.
//
// $CANN_SIM_FAULTS is written by faults.py: "kind rank unit count amount" per fault, separated by ';'. `rank` is -1 for
// every rank; the fault is due once `count` units (steps, operators, collectives, allocations) are finished.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim.h"

typedef struct {
  char kind[24], unit[16];
  int rank;
  long count;
  double amount;
} Fault;

static Fault faults[32];
static int fault_count;
static volatile long done[4];  // by SimUse; done[SIM_CALL] counts steps
static volatile int broken;    // error code that every later call returns
static volatile int used, forked;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int own_rank(void) {
  const char *rank = getenv("RANK");
  return rank && *rank ? atoi(rank) : 0;
}

static void in_child(void) { forked = used; }

static void read_faults(void) {
  pthread_atfork(NULL, NULL, in_child);
  const char *text = getenv("CANN_SIM_FAULTS");
  while (text && *text && fault_count < 32) {
    Fault *f = &faults[fault_count];
    if (sscanf(text, "%23s %d %15s %ld %lf", f->kind, &f->rank, f->unit, &f->count, &f->amount) != 5) {
      fprintf(stderr, "simulated CANN: cannot read the fault '%s'\n", text);
      abort();
    }
    fault_count++;
    text = strchr(text, ';');
    if (text) text++;
  }
}

static int due(const Fault *f) {
  if (f->rank >= 0 && f->rank != own_rank()) return 0;
  SimUse unit = !strcmp(f->unit, "operator")     ? SIM_OPERATOR
                : !strcmp(f->unit, "collective") ? SIM_COLLECTIVE
                : !strcmp(f->unit, "allocation") ? SIM_ALLOCATION
                                                 : SIM_CALL;
  return done[unit] >= f->count;
}

// torch_npu's allocator tries up to three times before it reports that memory is out.
static uint32_t strikes(const Fault *f) { return strcmp(f->kind, "oom") ? 1 : 3; }

static int strike(const Fault *f, const char *what) {
  const char *note = "fault injection of the simulated CANN";
  if (!strcmp(f->kind, "oom")) {
    return sim_error(ACL_OUT_OF_MEMORY, "EL0004: Failed to allocate memory. (%s)", note);
  }
  fprintf(stderr, "[simulated CANN] rank %d: %s before %s\n", own_rank(), f->kind, what);
  if (!strcmp(f->kind, "hang")) {
    for (;;) pause();
  }
  if (!strcmp(f->kind, "die")) _exit(137);
  broken = !strcmp(f->kind, "ecc") ? ACL_HBM_ECC_ERROR : ACL_DRIVER_ERROR;
  return broken;
}

static int broken_error(void) {
  if (broken == ACL_HBM_ECC_ERROR) return sim_error(broken, "HBM MULTI BIT ECC ERROR. (fault injection of the simulated CANN)");
  return sim_error(broken, "EL0005: The device is lost. (fault injection of the simulated CANN)");
}

int sim_gate(SimUse use, const char *what) {
  pthread_once(&once, read_faults);
  if (forked) {
    return sim_error(ACL_CONTEXT_NULL,
                     "EE1001: %s in a child of os.fork(): the parent had initialised the device and contexts are not "
                     "inherited; start processes with spawn.", what);
  }
  used = 1;
  if (broken) return broken_error();
  for (int i = 0; i < fault_count; i++) {
    Fault *f = &faults[i];
    int fits = strcmp(f->kind, "oom") ? 1 : use == SIM_ALLOCATION;
    if (!strcmp(f->kind, "slow_link") || !fits || sim_machine()->fault_fired[i] >= strikes(f) || !due(f)) continue;
    if (__sync_fetch_and_add(&sim_machine()->fault_fired[i], 1) >= strikes(f)) continue;
    int code = strike(f, what);
    return broken ? broken_error() : code;
  }
  if (use != SIM_CALL) __sync_fetch_and_add(&done[use], 1);
  return ACL_OK;
}

void sim_step(void) { __sync_fetch_and_add(&done[SIM_CALL], 1); }

double sim_link_bytes_per_s(void) {
  pthread_once(&once, read_faults);
  for (int i = 0; i < fault_count; i++) {
    if (!strcmp(faults[i].kind, "slow_link") && due(&faults[i])) return faults[i].amount;
  }
  return 0;
}
