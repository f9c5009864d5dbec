// The rest of AscendCL. `DOES_NOTHING` lists calls for which doing nothing is right here. Every other function that this
// torch_npu names (build.py reads the names out of its library into refused.inc) says that it isn't supported.
#include "sim.h"

#define DOES_NOTHING(name) \
  int name(void) { return sim_trace(#name), ACL_OK; }
#define REFUSED(name) \
  int name(void) { return sim_trace(#name " (refused)"), sim_error(ACL_NOT_SUPPORTED, "%s is not simulated.", #name); }

DOES_NOTHING(aclAppLog)
DOES_NOTHING(aclDestroyAclOpExecutor)
DOES_NOTHING(aclSetTensorDescName)
DOES_NOTHING(aclSetTensorFormat)
DOES_NOTHING(aclSetTensorShape)
DOES_NOTHING(aclmdlFinalizeDump)
DOES_NOTHING(aclmdlInitDump)
DOES_NOTHING(aclmdlSetDump)
DOES_NOTHING(aclopSetAttrBool)
DOES_NOTHING(aclopSetAttrDataType)
DOES_NOTHING(aclopSetAttrFloat)
DOES_NOTHING(aclopSetAttrInt)
DOES_NOTHING(aclopSetAttrListBool)
DOES_NOTHING(aclopSetAttrListFloat)
DOES_NOTHING(aclopSetAttrListInt)
DOES_NOTHING(aclopSetAttrListListInt)
DOES_NOTHING(aclopSetAttrString)
DOES_NOTHING(aclrtDeviceEnablePeerAccess)
DOES_NOTHING(aclrtGetLastError)
DOES_NOTHING(aclrtPeekAtLastError)
DOES_NOTHING(aclrtResetEvent)
DOES_NOTHING(aclrtSetDeviceResLimit)
DOES_NOTHING(aclrtSetDeviceSatMode)
DOES_NOTHING(aclrtSetOpExecuteTimeOut)
DOES_NOTHING(aclrtSetOpWaitTimeout)
DOES_NOTHING(aclrtSetStreamAttribute)
DOES_NOTHING(aclrtSetStreamFailureMode)
DOES_NOTHING(aclrtSetStreamOverflowSwitch)
DOES_NOTHING(aclrtSetStreamResLimit)
DOES_NOTHING(aclrtStreamWaitEvent)
DOES_NOTHING(aclrtSubscribeReport)
DOES_NOTHING(aclrtSynchronizeEvent)
DOES_NOTHING(aclrtUnSubscribeReport)
DOES_NOTHING(aclrtUnuseStreamResInCurrentThread)
DOES_NOTHING(aclrtUseStreamResInCurrentThread)
DOES_NOTHING(MsprofGetHashId)
DOES_NOTHING(MsprofRegisterCallback)
DOES_NOTHING(MsprofReportAdditionalInfo)
DOES_NOTHING(MsprofReportApi)
DOES_NOTHING(MsprofReportCompactInfo)
DOES_NOTHING(MsprofSysCycleTime)
DOES_NOTHING(rtGetC2cCtrlAddr)

#include "refused.inc"
