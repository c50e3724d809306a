/**
 * The far side of `odmoe bench hop`, a separate process. It has a worker's server that answers each Execute with the same hidden states, and a
 * plain TCP echo. It prints both ports as one line of JSON and ends when its standard input ends.
 */
import { NO_TIMES } from '../../shared/wire/messages.js';
import { avoidMarkingPauses } from '../../engine/daemon/collection-pauses.js';
import { createLogger } from '../../shared/base/log/logger.js';
import { GrpcTransport } from '../../shared/transport/grpc-transport.js';
import { PROTOCOL_VERSION } from '../../shared/wire/limits.js';
import { rowCount } from '../../shared/wire/pass-rows.js';
import type { PeerStream } from '../../shared/transport/peer-stream.js';
import type { NodeIdentity, WorkerReply, WorkerRequest } from '../../shared/wire/messages.js';
import { WallRuntime } from '../../shared/base/runtime/wall-runtime.js';
import { HOP_NETWORK } from './hop-network.js';
import { startTcpEcho } from './tcp-frames.js';
import { standardOutput } from '../../shared/base/text/text-output.js';
import { printableJson } from '../../shared/base/text/printable-text.js';

const identity: NodeIdentity = {
  id: 'echo',
  role: 'ROLE_WORKER',
  cluster: 'bench',
  protocolVersion: PROTOCOL_VERSION,
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

avoidMarkingPauses();
const runtime = new WallRuntime();
const log = createLogger({ level: 'warn', format: 'text' }, { role: 'echo', id: identity.bootId }, runtime);
const tcp = await startTcpEcho();
const rpc = await new GrpcTransport(runtime).serve({
  host: '127.0.0.1',
  port: 0,
  network: HOP_NETWORK,
  log,
  node: { identify: () => identity },
  worker: { serve: echo },
});
standardOutput.write(`${printableJson({ tcpPort: tcp.port, rpcAddress: rpc.address })}\n`);
process.stdin.on('end', () => process.exit(0));
process.stdin.resume();
