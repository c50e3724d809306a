import { PROTOCOL_VERSION, type PeerStream, type RpcServer } from '../../../shared/rpc/index.js';
import type {
  AlignToken,
  BeginSequence,
  NodeIdentity,
  ShadowReply,
  ShadowRequest,
} from '../../../shared/rpc/messages.js';
import type { TestCluster } from '../harness/test-cluster.js';
import { testSettings } from '../harness/test-settings.js';
import { WAIT_LIMIT_MS } from '../harness/wait-until.js';
import { joinMain, startRpcServer } from '../../wall.js';

export type ShadowStream = PeerStream<ShadowReply, ShadowRequest>;

/** What a scripted shadow does about main's messages; nothing where it is not said. */
export interface ShadowScript {
  onBegin?(stream: ShadowStream, begin: BeginSequence): void;
  onToken?(stream: ShadowStream, token: AlignToken): void;
}

/** A shadow that does what the test says, welcome in a cluster of `workers` workers. The caller stops it. */
export async function joinScriptedShadow(
  cluster: TestCluster,
  workers: number,
  script: ShadowScript,
): Promise<RpcServer> {
  const main = (await cluster.status()).nodes[0]?.identity;
  if (main === undefined) throw new Error('the cluster has no main');
  const { cluster: name, modelName, packDigest } = main;
  const identity: NodeIdentity = {
    ...{ id: 'scripted', role: 'ROLE_SHADOW', cluster: name, protocolVersion: PROTOCOL_VERSION, modelName, packDigest },
    ...{ bootId: 'scripted boot', address: '', device: 'none', release: '0.1.0' },
  };
  const { network } = testSettings('shadow', '');
  const server = await startRpcServer({
    ...{ host: '127.0.0.1', port: 0, network, log: cluster.log.logger('scripted'), identity: () => identity },
    shadow: (stream) => {
      stream.onClose(() => undefined);
      stream.onMessage((message) => {
        if (message.kind === 'hello')
          stream.send({ kind: 'welcome', welcome: { identity, partialPack: false, highestEpoch: 0 } });
        if (message.kind === 'begin') script.onBegin?.(stream, message.begin);
        if (message.kind === 'token') script.onToken?.(stream, message.token);
      });
    },
  });
  identity.address = server.address;
  await joinMain(cluster.mainAddress, identity, WAIT_LIMIT_MS);
  await cluster.waitForRoster(workers, 1);
  return server;
}
