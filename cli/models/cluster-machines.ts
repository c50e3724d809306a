import { readAuthorityFiles } from '../../engine/trust/authority-files.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';

/** The machines on which a cluster can count beside main. */
export interface Machines {
  workers: number;
  hasShadow: boolean;
  /** asked: the user gave their number; cluster: they are in the cluster's list, or among its configured addresses. */
  source: 'asked' | 'cluster';
}

/** Machines that this host's cluster has let in, or that its configuration names. @throws as readAuthorityFiles */
export async function presentMachines(
  { stateDirectory, cluster, discovery: { peers } }: Pick<NodeSettings, 'stateDirectory' | 'cluster' | 'discovery'>,
  asked: number | null,
): Promise<Machines> {
  const state = await readAuthorityFiles(stateDirectory, cluster);
  const listed = state?.roster.entries.filter(({ removed }) => removed === undefined) ?? [];
  const count = (role: 'worker' | 'shadow'): number =>
    Math.max(listed.filter((entry) => entry.role === role).length, peers.filter((peer) => peer.role === role).length);
  const hasShadow = count('shadow') > 0;
  return asked === null ? { workers: count('worker'), hasShadow, source: 'cluster' } : { workers: asked, hasShadow, source: 'asked' };
}
