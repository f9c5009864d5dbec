// Simulated AscendCL, runtime: devices, contexts, versions and options.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim.h"

static __thread int current = -1;

int sim_current_device(void) { return current < 0 ? 0 : current; }

int aclInit(const char *config) {
  (void)config;
  sim_trace(__func__);
  return ACL_OK;
}

int aclFinalize(void) { return ACL_OK; }

// devices

int aclrtGetDeviceCount(uint32_t *count) {
  *count = (uint32_t)sim_device_count();
  return ACL_OK;
}

int aclrtSetDevice(int32_t device) {
  sim_trace(__func__);
  int n = sim_device_count();
  if (device < 0 || device >= n) {
    return sim_error(ACL_INVALID_DEVICE, "EE1001: The argument is invalid. Reason: device id %d is not in [0, %d).", device, n);
  }
  int code = sim_gate(SIM_CALL, __func__);
  if (!code) current = device;
  return code;
}

int aclrtGetDevice(int32_t *device) {
  if (current < 0) return sim_error(ACL_CONTEXT_NULL, "EE1001: no device has been set in this thread.");
  *device = current;
  return ACL_OK;
}

int aclrtResetDevice(int32_t device) {
  (void)device;
  return ACL_OK;
}

int aclrtSetCurrentContext(void *context) {
  current = (int)(intptr_t)context - 1;
  return ACL_OK;
}

int aclrtGetCurrentContext(void **context) {
  if (current < 0) return sim_error(ACL_CONTEXT_NULL, "EE1001: no device has been set in this thread.");
  *context = (void *)(intptr_t)(current + 1);
  return ACL_OK;
}

int aclrtGetPrimaryCtxState(int32_t device, uint32_t *flags, int32_t *active) {
  if (flags) *flags = 0;
  *active = current == device;
  return ACL_OK;
}

int aclrtGetLogicDevIdByUserDevId(int32_t user, int32_t *logical) {
  *logical = user;
  return ACL_OK;
}

const char *aclrtGetSocName(void) {
  const char *soc = getenv("CANN_SIM_SOC");
  return soc ? soc : "Ascend910B2";
}

enum { AI_CORES = 24, VECTOR_CORES = 48 };  // of a 910B2

int aclrtGetDeviceInfo(uint32_t device, int attribute, int64_t *value) {
  (void)device;
  *value = attribute == 1 ? VECTOR_CORES : AI_CORES;
  return ACL_OK;
}

int aclGetDeviceCapability(uint32_t device, int attribute, int64_t *value) {
  (void)device;
  *value = attribute == 0 ? AI_CORES : attribute == 1 ? VECTOR_CORES : 1;
  return ACL_OK;
}

static int core_limit(int type, uint32_t *value) {
  *value = type == 0 ? AI_CORES : VECTOR_CORES;
  return ACL_OK;
}

int aclrtGetDeviceResLimit(int32_t device, int type, uint32_t *value) { return (void)device, core_limit(type, value); }
int aclrtGetStreamResLimit(void *stream, int type, uint32_t *value) { return (void)stream, core_limit(type, value); }
int aclrtGetResInCurrentThread(int type, uint32_t *value) { return core_limit(type, value); }

int aclrtDeviceGetUuid(int32_t device, char *uuid) {
  memset(uuid, 0, 16);
  uuid[0] = (char)(sim_physical_device(device) + 1);
  return ACL_OK;
}

int aclrtDeviceGetBareTgid(int32_t *pid) {
  *pid = getpid();
  return ACL_OK;
}

int aclrtDeviceCanAccessPeer(int32_t *can, int32_t device, int32_t peer) {
  (void)device, (void)peer;
  *can = 1;
  return ACL_OK;
}

int aclrtGetDeviceUtilizationRate(int32_t device, int32_t *rates) {
  memset(rates, 0, 3 * sizeof *rates);
  rates[3] = (int32_t)(sim_device_used(sim_physical_device(device)) * 100 / sim_capacity());
  return ACL_OK;
}

int aclrtGetMemUceInfo(int32_t device, void *list, size_t room, size_t *count) {
  (void)device, (void)list, (void)room;
  *count = 0;
  return ACL_OK;
}

int aclrtGetMemUsageInfo(uint32_t device, void *list, size_t room, size_t *count) {
  return aclrtGetMemUceInfo((int32_t)device, list, room, count);
}

// versions and options

int aclGetCannAttribute(int attribute, int32_t *value) {
  (void)attribute;
  *value = 1;
  return ACL_OK;
}

int aclGetCannAttributeList(const void **list, size_t *count) {
  *list = NULL;
  *count = 0;
  return ACL_OK;
}

static const char VERSION[] = "8.5.0";

int aclsysGetCANNVersion(int package, char *version) {
  (void)package;
  memset(version, 0, 128);
  strcpy(version, VERSION);
  return ACL_OK;
}

int aclsysGetVersionStr(char *package, char *version) {
  (void)package;
  strcpy(version, VERSION);
  return ACL_OK;
}

static int64_t system_options[64];
static char compile_options[32][128];

int aclrtGetSysParamOpt(int option, int64_t *value) {
  *value = option >= 0 && option < 64 ? system_options[option] : 0;
  return ACL_OK;
}

int aclrtSetSysParamOpt(int option, int64_t value) {
  if (option >= 0 && option < 64) system_options[option] = value;
  return ACL_OK;
}

int aclrtCtxSetSysParamOpt(int option, int64_t value) { return aclrtSetSysParamOpt(option, value); }

size_t aclGetCompileoptSize(int option) { return (void)option, sizeof compile_options[0]; }

int aclGetCompileopt(int option, char *value, size_t room) {
  snprintf(value, room, "%s", compile_options[option & 31]);
  return ACL_OK;
}

int aclSetCompileopt(int option, const char *value) {
  snprintf(compile_options[option & 31], sizeof compile_options[0], "%s", value);
  return ACL_OK;
}

int aclrtSetOpExecuteTimeOutV2(uint64_t wanted, uint64_t *actual) {
  *actual = wanted;
  return ACL_OK;
}
