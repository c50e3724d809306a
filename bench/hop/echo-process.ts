/**
 * The far side of `odmoe bench hop`, a separate process. It has a worker's server that answers each Execute with the same hidden states, the same
 * server behind TLS if it is told to read its trust from standard input, and a plain TCP echo. It prints where they are as one line of JSON, answers
 * every further line of standard input with its processor time, and ends when standard input ends.
 */
import { createInterface } from 'node:readline';
import { NO_TIMES } from '../../shared/wire/messages.js';
import { avoidMarkingPauses } from '../../engine/daemon/collection-pauses.js';
import { createLogger } from '../../shared/base/log/logger.js';
import { GrpcTransport } from '../../shared/transport/grpc-transport.js';
import { OLDEST_PROTOCOL } from '../../shared/wire/limits.js';
import { rowCount } from '../../shared/wire/pass-rows.js';
import type { ClusterTrust } from '../../shared/transport/trust/cluster-trust.js';
import type { PeerStream } from '../../shared/transport/peer-stream.js';
import type { NodeIdentity, WorkerReply, WorkerRequest } from '../../shared/wire/messages.js';
import { WallRuntime } from '../../shared/base/runtime/wall-runtime.js';
import { type EchoAddresses, type EchoUsage, HOP_CLUSTER, HOP_NETWORK, TRUSTED_ARGUMENT } from './hop-network.js';
import { openHopTrust } from './hop-trust.js';
import { startTcpEcho } from './tcp-frames.js';
import { standardOutput } from '../../shared/base/text/text-output.js';
import { printableJson } from '../../shared/base/text/printable-text.js';

const identity: NodeIdentity = {
  id: 'echo',
  role: 'ROLE_WORKER',
  cluster: HOP_CLUSTER,
  protocolVersion: OLDEST_PROTOCOL,
  modelName: '',
  packDigest: '',
  bootId: String(process.pid),
  address: '',
  device: '',
  release: '',
};

function echo(stream: PeerStream<WorkerReply, WorkerRequest>): void {
  stream.takeTensors();
  stream.onMessage((message) => {
    if (message.kind !== 'execute') return;
    const { requestId, epoch, rows, hiddenSize, dtype, hidden } = message.execute;
    const ran = { rows: rowCount(rows), wasLoaded: true, stallUs: 0, executeUs: 0, ...NO_TIMES, failure: null };
    const experts = message.execute.experts.map(({ expert }) => ({ expert, ...ran, output: hidden }));
    stream.send({ kind: 'result', result: { requestId, epoch, hiddenSize, dtype, experts, last: true, kept: null } });
  });
}

async function serveRpc(trust: ClusterTrust | null): Promise<string> {
  const { address } = await new GrpcTransport(runtime, null, trust).serve({
    host: '127.0.0.1',
    port: 0,
    network: HOP_NETWORK,
    log,
    node: { identify: () => identity },
    worker: { serve: echo },
  });
  return address;
}

function print(line: EchoAddresses | EchoUsage): void {
  standardOutput.write(`${printableJson(line)}\n`);
}

avoidMarkingPauses();
const runtime = new WallRuntime();
const log = createLogger({ level: 'warn', format: 'text' }, { role: 'echo', id: identity.bootId }, runtime);
process.stdin.on('end', () => process.exit(0));
const input = createInterface({ input: process.stdin });
const isTrusted = process.argv.includes(TRUSTED_ARGUMENT);
const trust = isTrusted ? await new Promise<string>((resolve) => input.once('line', resolve)).then(openHopTrust) : null;
const tcp = await startTcpEcho();
const rpcAddress = await serveRpc(null);
print({ tcpPort: tcp.port, rpcAddress, tlsAddress: trust === null ? null : await serveRpc(trust) });
input.on('line', () => {
  const { user, system } = process.cpuUsage();
  print({ processorUs: user + system });
});
