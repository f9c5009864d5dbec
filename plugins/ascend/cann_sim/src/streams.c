// Simulated AscendCL, streams and events. Streams are synchronous: work is done when it is given.
#define _GNU_SOURCE
#include <stdlib.h>
#include <unistd.h>

#include "sim.h"

// streams

typedef struct {
  int32_t id;
} Stream;

int aclrtCreateStreamWithConfig(void **out, uint32_t priority, uint32_t flags) {
  (void)priority, (void)flags;
  static int32_t last;
  int code = sim_gate(SIM_CALL, __func__);
  if (code) return code;
  Stream *s = malloc(sizeof *s);
  s->id = __sync_add_and_fetch(&last, 1);
  *out = s;
  return ACL_OK;
}

int aclrtCreateStream(void **out) { return aclrtCreateStreamWithConfig(out, 0, 0); }

int aclrtDestroyStream(void *stream) {
  (void)stream;  // kept: a late destructor may still ask for its id
  return ACL_OK;
}

int aclrtDestroyStreamForce(void *stream) { return aclrtDestroyStream(stream); }

int aclrtStreamGetId(Stream *stream, int32_t *id) {
  *id = stream ? stream->id : 0;
  return ACL_OK;
}

int aclrtStreamQuery(void *stream, int *status) {
  (void)stream;
  *status = 0;  // complete
  return sim_gate(SIM_CALL, __func__);
}

int aclrtSynchronizeStreamWithTimeout(void *stream, int32_t ms) {
  (void)stream, (void)ms;
  return sim_gate(SIM_CALL, "aclrtSynchronizeStream");
}

int aclrtSynchronizeStream(void *stream) { return (void)stream, sim_gate(SIM_CALL, __func__); }
int aclrtSynchronizeDeviceWithTimeout(int32_t ms) { return (void)ms, sim_gate(SIM_CALL, "aclrtSynchronizeDevice"); }
int aclrtSynchronizeDevice(void) { return sim_gate(SIM_CALL, __func__); }

int aclrtGetStreamOverflowSwitch(void *stream, uint32_t *on) {
  (void)stream;
  *on = 1;
  return ACL_OK;
}

int aclmdlRICaptureGetInfo(void *stream, int *status, void **graph) {
  (void)stream;
  if (status) *status = 0;  // no capture
  if (graph) *graph = NULL;
  return ACL_OK;
}

// events

typedef struct {
  double at;
} Event;

int aclrtCreateEventWithFlag(void **out, uint32_t flags) {
  (void)flags;
  int code = sim_gate(SIM_CALL, __func__);
  if (!code) *out = calloc(1, sizeof(Event));
  return code;
}

int aclrtCreateEventExWithFlag(void **out, uint32_t flags) { return aclrtCreateEventWithFlag(out, flags); }

int aclrtDestroyEvent(void *event) {
  free(event);
  return ACL_OK;
}

int aclrtRecordEvent(Event *event, void *stream) {
  (void)stream;
  event->at = sim_now();
  return ACL_OK;
}

int aclrtEventGetTimestamp(Event *event, uint64_t *us) {
  *us = (uint64_t)(event->at * 1e6);
  return ACL_OK;
}

int aclrtQueryEventStatus(void *event, int *status) {
  (void)event;
  *status = 1;  // complete
  return ACL_OK;
}

int aclrtQueryEventWaitStatus(void *event, int *status) {
  (void)event;
  *status = 0;  // complete
  return ACL_OK;
}

int aclrtEventElapsedTime(float *ms, Event *start, Event *end) {
  *ms = (float)((end->at - start->at) * 1e3);
  return ACL_OK;
}

// host functions

int aclrtLaunchCallback(void (*function)(void *), void *argument, int blocking, void *stream) {
  (void)blocking, (void)stream;
  function(argument);
  return ACL_OK;
}

int aclrtLaunchHostFunc(void *stream, void (*function)(void *), void *argument) {
  return aclrtLaunchCallback(function, argument, 0, stream);
}

int aclrtProcessReport(int32_t timeout_ms) {
  (void)timeout_ms;
  usleep(1000);
  return ACL_OK;
}
