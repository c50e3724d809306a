import { ShadowFeed, type FedShadow } from '../../main-node/decode/shadow-feed.js';
import { resolveSampling } from '../../shared/sampling/index.js';
import type { ShadowRequest } from '../../shared/rpc/messages.js';
import { MAIN, SHADOW, type SimulatedCluster } from './simulated-cluster.js';
import type { SimulatedShadow } from './simulated-shadow.js';

const NO_BYTES = { keys: new Uint8Array(0), values: new Uint8Array(0) };

/** The daemon's feed of shadow for one sequence. `fed`: null where it feeds nobody. */
export function createSimulatedFeed(
  cluster: SimulatedCluster,
  fed: FedShadow | null,
  { sequence, promptTokens, maxPositions }: { sequence: number; promptTokens: number; maxPositions: number },
): ShadowFeed {
  const { setUp, times, trace, placement } = cluster;
  const options = {
    ...{ sequence, promptTokens, maxPositions, layers: trace.layers, align: setUp.align },
    ...{ optimistic: setUp.drafting.optimistic, spread: setUp.placement.spread === 'all' },
    keyRowBytes: times.main.keyValueRowBytes / 2,
    sampling: resolveSampling(null, () => 0),
  };
  return new ShadowFeed(
    options,
    () => fed,
    () => placement.epoch,
    () => NO_BYTES,
  );
}

/** Main's link to shadow, over the simulated network. */
export function linkToShadow(cluster: SimulatedCluster, shadow: SimulatedShadow): FedShadow {
  return { id: SHADOW, alive: true, backlogBytes: 0, send: (request) => send(cluster, shadow, request) };
}

function send(cluster: SimulatedCluster, shadow: SimulatedShadow, request: ShadowRequest): void {
  const { network, times } = cluster;
  if (request.kind === 'begin') network.send(MAIN, SHADOW, 0, () => shadow.begin());
  if (request.kind === 'token') network.send(MAIN, SHADOW, 0, () => shadow.announce(request.token));
  if (request.kind === 'end') network.send(MAIN, SHADOW, 0, () => shadow.end());
  if (request.kind !== 'kvRows') return;
  const { position, layer, rows } = request.kvRows;
  const subject = { position, layer, expert: -1 };
  // Shadow decides by the tokens alone, behind which the rows have come.
  network.send(MAIN, SHADOW, rows * times.main.keyValueRowBytes, () => undefined, subject);
}
