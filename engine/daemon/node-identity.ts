import { qualityText } from '../../shared/settings/quality.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import { odmoeVersion } from '../../shared/base/files/odmoe-version.js';
import { OLDEST_PROTOCOL } from '../../shared/wire/limits.js';
import type { NodeIdentity } from '../../shared/wire/messages.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import type { NodeVersions } from '../../shared/wire/versions.js';

export interface IdentifiedModel {
  readonly name: string;
  readonly packDigest: string;
  /** Digest of the slices with which main or a worker computes experts; left out where it computes them exactly. */
  readonly slicesDigest?: string;
}

/** `sliced`: the slices with which the daemon computes experts; null: it computes them exactly. */
export function identifiedModel({
  source: { name, packDigest },
  sliced,
}: {
  source: Pick<IdentifiedModel, 'name' | 'packDigest'>;
  sliced: { readonly slices: { readonly digest: string } } | null;
}): IdentifiedModel {
  return { name, packDigest, ...(sliced === null ? {} : { slicesDigest: sliced.slices.digest }) };
}

/** The identity of a daemon that starts now; its address is added when it listens. `deviceInfo`: as the device reports it. */
export function createNodeIdentity(
  settings: NodeSettings,
  model: IdentifiedModel,
  deviceInfo: { backend: string; instructionSet: string; threads: number },
  { runtime, versions }: { runtime: Runtime; versions: NodeVersions },
): NodeIdentity {
  return {
    id: settings.id,
    role: ROLES[settings.role],
    cluster: settings.cluster,
    protocolVersion: OLDEST_PROTOCOL,
    ...versions,
    modelName: model.name,
    packDigest: model.packDigest,
    bootId: runtime.randomId(),
    address: '',
    device: describeDevice(deviceInfo),
    release: odmoeVersion(),
    ...(model.slicesDigest === undefined
      ? {}
      : { quality: qualityText(settings.main.quality), slicesDigest: model.slicesDigest }),
  };
}

/** "cpu avx2, 4 threads", "cpu avx2, 1 thread", "cuda sm_86, 82 multiprocessors". */
export function describeDevice(info: { backend: string; instructionSet: string; threads: number }): string {
  const part = info.backend === 'cuda' ? 'multiprocessor' : 'thread';
  return `${info.backend} ${info.instructionSet}, ${info.threads} ${part}${info.threads === 1 ? '' : 's'}`;
}

const ROLES = { main: 'ROLE_MAIN', shadow: 'ROLE_SHADOW', worker: 'ROLE_WORKER' } as const;
