// What the parts of the simulated CANN share. libascendcl.so owns this; libhccl.so and the operator bridge call it.
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Numbers of CANN's acl/error_codes/rt_error_codes.h.
enum {
  ACL_OK = 0,
  ACL_INVALID_PARAM = 107000,
  ACL_INVALID_DEVICE = 107001,
  ACL_CONTEXT_NULL = 107002,
  ACL_NOT_SUPPORTED = 207000,
  ACL_OUT_OF_MEMORY = 207001,
  ACL_HBM_ECC_ERROR = 507054,
  ACL_DRIVER_ERROR = 507899,
  ACL_OP_FAILED = 500001,
};

enum { SIM_MAX_DEVICES = 16, SIM_MAX_PROCESSES = 256 };

// The part of the machine's state that all processes of one simulation see; a file in $CANN_SIM_SESSION.
typedef struct {
  volatile int32_t pid;  // 0: free slot
  volatile uint64_t used[SIM_MAX_DEVICES];
} SimProcess;

typedef struct {
  SimProcess process[SIM_MAX_PROCESSES];
  volatile uint32_t fault_fired[32];  // a fault happens once in a simulation, not again after a restart
} SimMachine;

SimMachine *sim_machine(void);
SimProcess *sim_process(void);
int sim_process_alive(int pid);  // a zombie is dead

int sim_device_count(void);       // devices this process may see
int sim_physical_device(int id);  // logical to physical id (ASCEND_RT_VISIBLE_DEVICES)
int sim_current_device(void);     // of this thread, logical
size_t sim_capacity(void);        // bytes per device
uint64_t sim_device_used(int physical);

// Text for aclGetRecentErrMsg(); both return `code` so that callers can write `return sim_error(code, ...)`.
int sim_error(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *sim_error_text(void);

void sim_trace(const char *what);  // CANN_SIM_TRACE=1 writes every call to stderr

// Every use of a device passes here: fails in a forked child, on a lost device, and where a fault is due.
typedef enum { SIM_CALL, SIM_OPERATOR, SIM_COLLECTIVE, SIM_ALLOCATION } SimUse;
int sim_gate(SimUse use, const char *what);
void sim_step(void);                // one optimizer step is finished
double sim_link_bytes_per_s(void);  // 0: unlimited
double sim_now(void);               // seconds, monotonic

#ifdef __cplusplus
}
#endif
