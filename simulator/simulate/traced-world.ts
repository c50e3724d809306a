import { pacedDevice } from '../../engine/emulation/paced-device.js';
import type { Devices } from '../../engine/devices/devices.js';
import type { CudaStatus } from '../../native/index.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { EmulatedDevice } from '../../engine/emulation/device-profile.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import { ruledSlices } from '../../engine/loading/open-for-quality.js';
import type { Pack } from '../../packs/format/open-pack.js';
import type { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import type { NodeWorld } from '../cluster/simulated-node.js';
import { recordingDevice } from '../timing/recording-device.js';
import type { ClusterTrace } from '../trace/cluster-trace.js';
import { TraceDevice } from '../trace/trace-device.js';
import { traceSlices } from '../trace/trace-pack.js';
import { traceWeights } from '../trace/trace-weights.js';
import { mainModel, shadowModel, type TraceModel } from '../trace/trace-model.js';
import type { ClusterSetUp, ClusterTimes } from './cluster-set-up.js';
import type { ClusterTiming } from './cluster-timing.js';

export const NO_CUDA: CudaStatus = {
  built: false,
  library: '',
  architectures: [],
  usable: false,
  reason: 'simulated',
  driverVersion: null,
  runtimeVersion: null,
  devices: [],
};

/** A logger that drops everything: a simulation for times does not need the daemons' logs. */
export const SILENT: Logger = {
  error: () => undefined,
  warn: () => undefined,
  info: () => undefined,
  debug: () => undefined,
};

/** Data that the daemons of a traced cluster share. */
export interface TracedCluster {
  times: ClusterTimes;
  setUp: ClusterSetUp;
  trace: ClusterTrace;
  timing: ClusterTiming;
  pack: Pack;
  directory: string;
}

/** The environment of a daemon of a traced cluster: the profile's device, with the trace in place of arithmetic. `index`: number of a worker. */
export function tracedWorld(cluster: TracedCluster, { role, id }: NodeSettings, index: number): NodeWorld {
  const { times, timing } = cluster;
  const emulated = role === 'worker' ? (times.workers?.[index] ?? times.worker) : times[role];
  if (emulated === null)
    throw new OdmoeError('USAGE', 'the profile has no shadow: give --prediction router-ahead (or random, or off)');
  const devices = (runtime: VirtualRuntime): Devices => ({
    open: () =>
      recordingDevice(paced(modelOf(cluster, role), emulated, runtime), {
        node: id,
        nowMs: () => runtime.nowMs(),
        log: timing.log,
        ...(role === 'main' ? { onPass: (pass, what) => timing.onPass(pass, what) } : {}),
        positionOf: (layer, expert) => timing.positionOf(id, layer, expert),
      }),
    cudaStatus: () => NO_CUDA,
  });
  return {
    devices,
    openPack: async () => cluster.pack,
    slicesForQuality: async (pack, quality) => ruledSlices(traceSlices(pack, quality.split), quality),
    readPredictor: () => noMaps(cluster.setUp),
    dataDirectory: cluster.directory,
    log: SILENT,
    seed: index,
  };
}

/** The numbers of a trace's states mean nothing to maps. */
async function noMaps({ prediction }: ClusterSetUp): Promise<null> {
  if (prediction.source !== 'trained') return null;
  throw new OdmoeError(
    'USAGE',
    'a trace has no states for trained maps: give --prediction router-ahead, and the recall of the maps (--recall)',
  );
}

function paced(model: TraceModel | null, emulated: EmulatedDevice, runtime: VirtualRuntime) {
  const pace = { times: emulated, memory: { bytes: emulated, budgetBytes: 0 } };
  return pacedDevice(new TraceDevice(model), pace, runtime);
}

/** The trace model of a role. If shadow does not get every token of main, the trace has predictions for shadow's own text. */
function modelOf({ trace, setUp }: TracedCluster, role: NodeSettings['role']): TraceModel | null {
  if (role === 'worker') return null;
  const model =
    role === 'main' ? mainModel(trace) : shadowModel(trace, setUp.align.tokenPeriod === 1 ? 'traced' : 'right');
  return setUp.quality.kind === 'critical' ? { ...model, weights: traceWeights } : model;
}
