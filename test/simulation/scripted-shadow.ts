import type { PeerStream } from '../../shared/transport/peer-stream.js';
import type { RpcServer } from '../../shared/transport/transport.js';
import type {
  AlignRows,
  AlignToken,
  BeginSequence,
  NodeIdentity,
  ShadowReply,
  ShadowRequest,
} from '../../shared/wire/messages.js';
import { testSettings } from '../integration/harness/test-settings.js';
import { VIRTUAL_LIMIT_MS, type VirtualCluster } from './virtual-cluster.js';
import { joinMain } from '../../shared/transport/node-clients.js';
import { plainIdentity } from '../unit/plain-identity.js';

export type ShadowStream = PeerStream<ShadowReply, ShadowRequest>;

/** Reactions of a scripted shadow to main's messages. It ignores a message that has no handler. */
export interface ShadowScript {
  onBegin?(stream: ShadowStream, begin: BeginSequence): void;
  onToken?(stream: ShadowStream, token: AlignToken): void;
  onRows?(rows: AlignRows): void;
}

/** Adds a scripted shadow to a cluster of `workers` workers, and resolves when main has welcomed it. The caller stops it. */
export async function joinScriptedShadow(
  cluster: VirtualCluster,
  workers: number,
  script: ShadowScript,
  id = 'scripted',
): Promise<RpcServer> {
  const main = (await cluster.status()).nodes[0]?.identity;
  if (main === undefined) throw new Error('the cluster has no main');
  const { cluster: name, modelName, packDigest } = main;
  const identity: NodeIdentity = plainIdentity({
    id,
    role: 'ROLE_SHADOW',
    cluster: name,
    modelName,
    packDigest,
    bootId: `${id} boot`,
    address: '',
    device: 'none',
  });
  const { network } = testSettings('shadow', '');
  const { transport } = cluster.host(id);
  const server = await transport.serve({
    host: id,
    port: 0,
    network,
    log: cluster.log.logger(id),
    node: { identify: () => identity },
    shadow: {
      serve: (stream) => {
        stream.onClose(() => undefined);
        stream.onMessage((message) => {
          if (message.kind === 'hello')
            stream.send({ kind: 'welcome', welcome: { identity, partialPack: false, highestEpoch: 0 } });
          if (message.kind === 'begin') script.onBegin?.(stream, message.begin);
          if (message.kind === 'cacheRows') script.onRows?.(message.cacheRows);
          if (message.kind === 'token') script.onToken?.(stream, message.token);
        });
      },
    },
  });
  identity.address = server.address;
  await cluster.passing(joinMain(transport, cluster.mainAddress, identity, VIRTUAL_LIMIT_MS));
  await cluster.waitForRoster(workers, 1);
  return server;
}
