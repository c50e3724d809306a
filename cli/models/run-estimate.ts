import { presentMachines, type Machines } from './cluster-machines.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { freeBytes } from '../../shared/base/files/storage-error.js';
import { loadDeviceProfile } from '../../engine/emulation/load-device-profile.js';
import { shippedStorage } from '../../engine/emulation/device-profile.js';
import { openAnyPack } from '../../packs/format/open-pack.js';
import { denseBytes, expertBytes } from '../../packs/packing/model-bytes.js';
import { existingDirectory } from './pack-places.js';
import { availableMemoryBytes } from '../../shared/base/runtime/available-memory.js';
import { type CudaStatus, cudaStatus } from '../../native/index.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';
import { formatBytes } from '../../shared/base/text/units.js';
import { boxTimes, overrideProfile, plannedModel } from '../../simulator/plan/planned-profile.js';
import { DEFAULT_SET_UP } from '../../simulator/simulate/cluster-set-up.js';
import { simulateCluster } from '../../simulator/simulate/simulate-cluster.js';
import { SyntheticTrace } from '../../simulator/trace/synthetic-trace.js';
import { ASSUMED_RECALL, DEFAULT_PROMPT_TOKENS, profileFile } from '../client/simulation-flags.js';
import type { FoundModel } from './find-model.js';

/** Tokens that are simulated: enough for a mean, and few enough for a quick answer. */
const TOKENS = 8;
/** Tokens that shadow guesses as main does, as `odmoe plan cluster` assumes. */
const ACCEPTANCE = 0.98;
/** Experts that main's own worker loads at a time, at least. */
const LEAST_SLOTS = 2;

/** Memory, disk and speed of this box and its cluster with a model. */
export interface RunEstimate {
  machines: Machines;
  /** Memory that main needs on this box before it answers anything. */
  neededBytes: number;
  /** Memory that this box has free for it, by main's budget or the system. */
  memoryBytes: number;
  /** Memory of the GPU that main is told to compute on; null: main may take the processor, or its budget or the host's memory says it. */
  gpuBytes: number | null;
  /** Memory of one expert, which a worker needs at least. */
  expertBytes: number;
  /** This box runs experts, too. */
  runsExperts: boolean;
  /** The disk while the pack is made, and what is free there; null: the file system does not say. */
  diskNeededBytes: number;
  diskFreeBytes: number | null;
  /** Tokens a second of one answer, for boxes like those of the profile, in all that the machines have not measured. */
  tokensPerS: number;
  profile: string;
}

/** Estimates before anything large is downloaded. `workers`: how many boxes are to be counted; null: those that are in the cluster. */
export async function estimateRun(
  model: FoundModel,
  settings: NodeSettings,
  asked: { profile: string; workers: number | null; packs: string; runsExperts: boolean },
): Promise<RunEstimate> {
  const source = await sourceOf(model);
  const machines = await presentMachines(settings, asked.workers);
  const { memoryBudgetBytes: budgetBytes } = settings.device;
  const oneBytes = expertBytes(source.expert(0, 0));
  const { runsExperts } = asked;
  return {
    machines,
    neededBytes: denseBytes(source) + (runsExperts ? LEAST_SLOTS * oneBytes : 0),
    memoryBytes: budgetBytes === 0 ? availableMemoryBytes() : budgetBytes,
    gpuBytes: gpuBytes(settings, cudaStatus),
    expertBytes: oneBytes,
    runsExperts,
    diskNeededBytes: model.kind === 'packed' ? 0 : model.needs.peakBytes,
    diskFreeBytes: await freeBytes(await existingDirectory(asked.packs)),
    ...(await speedOf(source, machines, asked.profile)),
  };
}

/** Memory of the GPU that the settings name, as RunEstimate says. */
export function gpuBytes(
  { device, emulation }: Pick<NodeSettings, 'device' | 'emulation'>,
  status: () => Pick<CudaStatus, 'devices'>,
): number | null {
  if (device.backend !== 'cuda' || device.memoryBudgetBytes !== 0 || emulation !== null) return null;
  const gpu = status().devices.find(({ index, usable }) => usable && (device.device === null || index === device.device));
  return gpu === undefined || gpu.integrated ? null : gpu.memoryBytes;
}

async function sourceOf(model: FoundModel): Promise<ModelSource> {
  if (model.kind === 'packed') return openAnyPack(model.directory);
  return model.kind === 'cached' ? model.checkpoint : model.remote.checkpoint;
}

/** The planner's estimate for boxes of a profile, or with what they have measured: the daemons' own code, on a virtual clock. */
async function speedOf(
  source: ModelSource,
  { workers, hasShadow, boxes: measured }: Machines,
  profileName: string,
): Promise<{ tokensPerS: number; profile: string }> {
  const profile = overrideProfile(loadDeviceProfile(profileFile(profileName)), {
    model: plannedModel(source),
    modelProfile: null,
    format: null,
    networkBytesPerS: null,
    roundTripMs: null,
  });
  // Main's own worker counts as a box: it loads as one does, and saves the network's time.
  const count = Math.max(1, workers);
  const predicted = hasShadow && profile.devices.shadow !== null ? 'sep' : 'router-ahead';
  const prediction = { ...DEFAULT_SET_UP.prediction, source: predicted } as const;
  const setUp = { ...DEFAULT_SET_UP, workers: count, prediction };
  const { expertLayers: layers, experts, expertsPerToken } = profile.model.shape;
  const trace = new SyntheticTrace({
    layers,
    experts,
    expertsPerToken,
    prompts: 1,
    promptTokens: DEFAULT_PROMPT_TOKENS,
    iterations: TOKENS,
    acceptance: ACCEPTANCE,
    seed: 1,
    recall: ASSUMED_RECALL[predicted],
  });
  const boxes = measured.length > 0 ? measured : [{ count, linkBytesPerS: null, memoryBytes: null }];
  const times = boxTimes(profile, boxes, shippedStorage(profile.model));
  const { decodeTokensPerS } = await simulateCluster(times, setUp, trace, { tokens: TOKENS });
  return { tokensPerS: decodeTokensPerS, profile: profile.name };
}

/** Workers of which is known that they cannot hold one expert. */
function tooSmall({ boxes }: Machines, oneBytes: number): number {
  const small = boxes.filter(({ memoryBytes }) => memoryBytes !== null && memoryBytes < oneBytes);
  return small.reduce((sum, { count }) => sum + count, 0);
}

/** The error for a box that cannot run the model (DEVICE_OUT_OF_MEMORY, STORAGE_FULL); null: it can. Pure. */
export function obstacle(
  id: string,
  { machines, neededBytes, memoryBytes, gpuBytes, expertBytes, runsExperts, diskNeededBytes, diskFreeBytes }: RunEstimate,
): OdmoeError | null {
  if (gpuBytes !== null && neededBytes > gpuBytes) {
    return new OdmoeError(
      'DEVICE_OUT_OF_MEMORY',
      `${id}: main needs ${formatBytes(neededBytes)} of memory for all but the experts, and its GPU has ${formatBytes(gpuBytes)}; leave ` +
        '--device out, so that main can take the processor, or choose a smaller model (nothing of its weights was downloaded)',
    );
  }
  if (!runsExperts && machines.workers > 0 && tooSmall(machines, expertBytes) === machines.workers) {
    return new OdmoeError(
      'DEVICE_OUT_OF_MEMORY',
      `${id}: an expert needs ${formatBytes(expertBytes)}, and no worker has so much memory; give a worker a larger --memory-budget, let this box ` +
        'run experts (--experts both), or choose a smaller model (nothing of its weights was downloaded)',
    );
  }
  if (neededBytes > memoryBytes) {
    return new OdmoeError(
      'DEVICE_OUT_OF_MEMORY',
      `${id}: main needs ${formatBytes(neededBytes)} of memory for all but the experts, and ${formatBytes(memoryBytes)} are free on this box; ` +
        'run it on a box with more, end other programs, or choose a smaller model (nothing of its weights was downloaded)',
    );
  }
  if (diskFreeBytes === null || diskNeededBytes <= diskFreeBytes) return null;
  return new OdmoeError(
    'STORAGE_FULL',
    `${id}: ${formatBytes(diskNeededBytes)} of disk are needed while its pack is made, and ${formatBytes(diskFreeBytes)} are free; ` +
      'free some space, or give another disk by --packs (nothing of its weights was downloaded)',
  );
}

/** The estimate in words. Pure. */
export function estimateLines(estimate: RunEstimate): string[] {
  const { machines, neededBytes, memoryBytes, diskNeededBytes, diskFreeBytes, tokensPerS, profile } = estimate;
  const { workers } = machines;
  const small = tooSmall(machines, estimate.expertBytes);
  const alone = 'no other machine is in the cluster yet, so this box runs the experts; workers that join later are used';
  const free = diskFreeBytes === null ? '' : ` of ${formatBytes(diskFreeBytes)} that are free`;
  return [
    `  cluster: ${workers === 0 ? alone : machineWords(machines)}`,
    ...(small === 0
      ? []
      : [`  workers: ${small} of ${workers} have not the ${formatBytes(estimate.expertBytes)} of memory that one expert needs`]),
    `  memory:  ${formatBytes(neededBytes)} on this box for all but the experts, of ${formatBytes(memoryBytes)} that are free`,
    ...(diskNeededBytes === 0 ? [] : [`  disk:    ${formatBytes(diskNeededBytes)} while the pack is made,${free}`]),
    `  speed:   ${speedWords(machines, tokensPerS, profile)}`,
  ];
}

const SOURCE_WORDS: Readonly<Record<Machines['source'], string>> = {
  asked: '--workers',
  cluster: 'the machines of this cluster',
  measured: 'connected to the main that runs here',
};

function machineWords({ workers, hasShadow, source }: Machines): string {
  return `${workers} worker${workers === 1 ? '' : 's'}${hasShadow ? ' and a shadow' : ''} (${SOURCE_WORDS[source]})`;
}

/** The estimate of the speed, and on what it is founded: a number of other machines must not pass for one of these. */
function speedWords({ boxes }: Machines, tokensPerS: number, profile: string): string {
  const about = `about ${tokensPerS.toPrecision(2)} tokens/s with`;
  const measured = boxes.filter(({ linkBytesPerS }) => linkBytesPerS !== null).length;
  const assumed = `boxes like those of the profile ${profile} ("odmoe plan cluster --help" for yours)`;
  if (measured === 0) return `not measured here; ${about} ${assumed}`;
  const whose = measured === boxes.length ? 'these workers' : `${measured} of these workers`;
  return `${about} the loads that ${whose} have measured, in all else ${assumed}`;
}
